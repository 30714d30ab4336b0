//! Keeps the beginning of a request's body, so that a request that its agent never began can be sent again.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Most bytes of a body that are kept. A request with a longer one is not sent again.
pub(crate) const KEPT_BYTES_MAX: usize = 64 * 1024;

/// Most kept bytes of all requests together. Beyond it, the bodies of further requests are not kept.
const KEPT_BYTES_ALL_MAX: usize = 64 * 1024 * 1024;
const _: () = assert!(KEPT_BYTES_ALL_MAX / KEPT_BYTES_MAX >= 1_000);

/// The room for the kept bytes of all requests. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct KeptBytes(Arc<Semaphore>);

/// A body whose beginning is kept until its request is answered.
pub(crate) struct KeptBody<B>(Arc<Mutex<KeptState<B>>>);

/// The body for one attempt to send the request. It ends with the next attempt: nothing comes of it any more.
pub(crate) struct BodyAttempt<B> {
    state: Arc<Mutex<KeptState<B>>>,
    attempt: u32,
    /// The number of kept bytes that this attempt has taken.
    taken: usize,
}

struct KeptState<B> {
    caller: B,
    /// `None` if the body can no longer be sent again.
    kept: Option<BytesMut>,
    room: KeptBytes,
    permit: Option<OwnedSemaphorePermit>,
    attempt: u32,
}

impl Default for KeptBytes {
    fn default() -> Self {
        Self::new(KEPT_BYTES_ALL_MAX)
    }
}

impl KeptBytes {
    fn new(bytes_max: usize) -> Self {
        Self(Arc::new(Semaphore::new(bytes_max)))
    }

    fn take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0).try_acquire_many_owned(u32::try_from(bytes).ok()?).ok()
    }
}

impl<B> KeptBody<B> {
    /// Keeps the beginning of `caller`, as far as there is `room`.
    pub(crate) fn new(caller: B, room: KeptBytes) -> Self {
        let kept = Some(BytesMut::new());
        Self(Arc::new(Mutex::new(KeptState { caller, kept, room, permit: None, attempt: 0 })))
    }

    /// The body of the first attempt.
    pub(crate) fn first(&self) -> BodyAttempt<B> {
        BodyAttempt { state: Arc::clone(&self.0), attempt: 0, taken: 0 }
    }

    /// The body of the next attempt, from its first byte on. `None` if that is no longer kept.
    pub(crate) fn next(&self) -> Option<BodyAttempt<B>> {
        let mut state = lock(&self.0);
        state.kept.as_ref()?;
        state.attempt += 1;
        Some(BodyAttempt { state: Arc::clone(&self.0), attempt: state.attempt, taken: 0 })
    }

    /// Keeps nothing any more, because the request was answered.
    pub(crate) fn release(&self) {
        lock(&self.0).release();
    }
}

impl<B> KeptState<B> {
    fn release(&mut self) {
        (self.kept, self.permit) = (None, None);
    }

    /// Keeps one more piece, unless that would be too much.
    fn keep(&mut self, piece: &Frame<Bytes>) {
        let Some(kept) = &mut self.kept else { return };
        // Trailers are not kept, so a body with trailers is not sent again.
        let data = piece.data_ref().filter(|data| kept.len() + data.len() <= KEPT_BYTES_MAX);
        let Some((data, permit)) = data.and_then(|data| Some((data, self.room.take(data.len())?))) else {
            return self.release();
        };
        // A copy: the piece itself may belong to a much larger buffer.
        kept.extend_from_slice(data);
        match &mut self.permit {
            Some(all) => all.merge(permit),
            None => self.permit = Some(permit),
        }
    }
}

impl<B> BodyAttempt<B> {
    /// The kept bytes that this attempt has not taken yet.
    fn rest(&self, state: &KeptState<B>) -> usize {
        state.kept.as_ref().map_or(0, |kept| kept.len().saturating_sub(self.taken))
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for BodyAttempt<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        let mut state = lock(&this.state);
        if state.attempt != this.attempt {
            return Poll::Pending;
        }
        if this.rest(&state) > 0
            && let Some(kept) = &state.kept
        {
            let again = Bytes::copy_from_slice(&kept[this.taken..]);
            this.taken = kept.len();
            return Poll::Ready(Some(Ok(Frame::data(again))));
        }
        let frame = ready!(Pin::new(&mut state.caller).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                state.keep(frame);
                this.taken = state.kept.as_ref().map_or(this.taken, BytesMut::len);
            }
            // A broken body is not sent again: what was kept would look complete.
            Some(Err(_)) => state.release(),
            None => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        let state = lock(&self.state);
        self.rest(&state) == 0 && state.caller.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let state = lock(&self.state);
        let (rest, caller) = (self.rest(&state) as u64, state.caller.size_hint());
        let mut hint = SizeHint::new();
        if let Some(upper) = caller.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint.set_lower(caller.lower().saturating_add(rest));
        hint
    }
}

fn lock<B>(state: &Mutex<KeptState<B>>) -> MutexGuard<'_, KeptState<B>> {
    // A panic under the lock is one of the caller's body, which then yields nothing more.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::task::Waker;

    use super::*;

    #[test]
    fn the_next_attempt_begins_with_the_first_byte_again() {
        let body = KeptBody::new(pieces(&[b"one,", b"two,", b"three"]), KeptBytes::default());
        let mut first = body.first();
        assert_eq!((piece(&mut first), piece(&mut first)), (Some("one,".into()), Some("two,".into())));

        let mut next = body.next().unwrap();

        assert_eq!(next.size_hint().exact(), Some(13));
        assert_eq!(all(&mut next), ["one,two,", "three"]);
        assert!(next.is_end_stream());
        assert!(matches!(poll(&mut first), Poll::Pending), "nothing comes of the attempt before");
        assert_eq!(all(&mut body.next().unwrap()), ["one,two,three"], "and the same once more");
    }

    #[test]
    fn a_body_beyond_the_limit_passes_and_is_not_sent_again() {
        let largest = vec![b'x'; KEPT_BYTES_MAX];
        let (body, longer) = (
            KeptBody::new(pieces(&[&largest]), KeptBytes::default()),
            KeptBody::new(pieces(&[&largest, b"y"]), KeptBytes::default()),
        );
        assert_eq!(all(&mut body.first()).concat().len(), KEPT_BYTES_MAX);
        assert_eq!(all(&mut longer.first()).concat().len(), KEPT_BYTES_MAX + 1);

        assert_eq!((body.next().is_some(), longer.next().is_some()), (true, false));
    }

    #[test]
    fn all_kept_bytes_together_have_a_limit_and_are_given_back() {
        let room = KeptBytes::new(8);
        let bodies = [(); 2].map(|()| KeptBody::new(pieces(&[b"12345"]), room.clone()));
        bodies.iter().for_each(|body| assert_eq!(all(&mut body.first()), ["12345"]));
        assert_eq!(bodies.each_ref().map(|body| body.next().is_some()), [true, false]);

        bodies[0].release();

        assert!(bodies[0].next().is_none());
        assert_eq!(room.0.available_permits(), 8);
    }

    #[test]
    fn a_body_with_trailers_is_not_sent_again() {
        let frames = VecDeque::from([Frame::data("x".into()), Frame::trailers(http::HeaderMap::new())]);
        let (body, mut seen) = (KeptBody::new(Pieces(frames), KeptBytes::default()), 0);
        let mut first = body.first();
        while let Poll::Ready(Some(_)) = poll(&mut first) {
            seen += 1;
        }
        assert_eq!((seen, body.next().is_some()), (2, false));
    }

    /// Over HTTP/1.1, nothing comes after the one error of hyper's body.
    #[test]
    fn a_body_that_broke_is_not_sent_again_as_if_complete() {
        let body = KeptBody::new(Broken(VecDeque::from([Ok("half"), Err("broken")])), KeptBytes::default());
        let mut first = body.first();
        assert!(matches!(poll(&mut first), Poll::Ready(Some(Ok(_)))));
        assert!(matches!(poll(&mut first), Poll::Ready(Some(Err("broken")))));

        assert!(body.next().is_none());
    }

    struct Broken(VecDeque<Result<&'static str, &'static str>>);

    impl Body for Broken {
        type Data = Bytes;
        type Error = &'static str;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
            Poll::Ready(self.0.pop_front().map(|piece| piece.map(|text| Frame::data(text.into()))))
        }
    }

    struct Pieces(VecDeque<Frame<Bytes>>);

    impl Body for Pieces {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Ready(self.0.pop_front().map(Ok))
        }

        fn is_end_stream(&self) -> bool {
            self.0.is_empty()
        }

        fn size_hint(&self) -> SizeHint {
            let bytes = self.0.iter().filter_map(Frame::data_ref).map(Bytes::len).sum::<usize>();
            SizeHint::with_exact(bytes as u64)
        }
    }

    fn pieces(pieces: &[&[u8]]) -> Pieces {
        Pieces(pieces.iter().map(|piece| Frame::data(Bytes::copy_from_slice(piece))).collect())
    }

    type PolledFrame<B> = Poll<Option<Result<Frame<<B as Body>::Data>, <B as Body>::Error>>>;

    fn poll<B: Body + Unpin>(body: &mut B) -> PolledFrame<B> {
        Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop()))
    }

    fn piece(body: &mut BodyAttempt<Pieces>) -> Option<String> {
        let Poll::Ready(frame) = poll(body) else { panic!("it never waits") };
        let data = frame?.unwrap().into_data().unwrap();
        Some(String::from_utf8(data.to_vec()).unwrap())
    }

    fn all(body: &mut BodyAttempt<Pieces>) -> Vec<String> {
        std::iter::from_fn(|| piece(body)).collect()
    }
}

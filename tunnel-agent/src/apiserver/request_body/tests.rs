//! A body that is sent again, from its first byte or not at all.

use std::future::poll_fn;
use std::pin::pin;

use futures::stream;
use http_body_util::{Full, StreamBody};
use proptest::prelude::*;

use super::*;

#[tokio::test]
async fn a_body_is_kept_up_to_its_limit_and_not_one_byte_more() {
    for (bytes, is_kept) in [(0, true), (1, true), (KEPT_BYTES_MAX, true), (KEPT_BYTES_MAX + 1, false)] {
        let body = resendable(vec![Bytes::from(vec![b'x'; bytes])]);
        let first = body.next_sending().unwrap();
        assert_eq!(first.collect().await.unwrap().to_bytes().len(), bytes);

        let again = body.next_sending();

        assert_eq!(again.is_some(), is_kept, "{bytes}");
        if let Some(again) = again {
            assert_eq!(again.collect().await.unwrap().to_bytes().len(), bytes);
        }
    }
}

#[tokio::test]
async fn a_larger_body_is_sent_again_as_long_as_no_more_of_it_was_taken() {
    let pieces: Vec<Bytes> = (0..8).map(|n| Bytes::from(vec![n; KEPT_BYTES_MAX / 4])).collect();
    let body = resendable(pieces.clone());
    let mut first = body.next_sending().unwrap();
    for _ in 0..4 {
        frame(&mut first).await.unwrap();
    }

    let again = body.next_sending().unwrap();

    assert_eq!(again.collect().await.unwrap().to_bytes(), pieces.concat());
    assert!(body.next_sending().is_none(), "the second sending took more than is kept");
}

#[tokio::test]
async fn an_earlier_sending_takes_nothing_from_a_later_one() {
    let body = resendable(vec![Bytes::from("ab"), Bytes::from("cd")]);
    let mut first = body.next_sending().unwrap();
    frame(&mut first).await.unwrap();
    let second = body.next_sending().unwrap();

    assert!(frame(&mut first).await.is_err());

    assert_eq!(second.collect().await.unwrap().to_bytes(), "abcd");
    assert!(body.progress.has_ended());
}

#[tokio::test]
async fn nothing_is_kept_once_the_answer_has_come() {
    let body = resendable(vec![Bytes::from("ab"), Bytes::from("cd")]);
    let mut first = body.next_sending().unwrap();
    frame(&mut first).await.unwrap();

    body.forget();

    assert!(body.next_sending().is_none());
    assert_eq!(first.collect().await.unwrap().to_bytes(), "cd");
}

#[tokio::test]
async fn a_known_length_stays_known_when_a_body_is_sent_again() {
    let progress = Progress::default();
    let body = ResendableBody::new(Full::new(Bytes::from("abcd")), &progress);
    let mut first = body.next_sending().unwrap();
    assert_eq!(first.size_hint().exact(), Some(4));
    frame(&mut first).await.unwrap();
    assert!(progress.has_ended() && first.is_end_stream());

    let second = body.next_sending().unwrap();

    assert_eq!(second.size_hint().exact(), Some(4));
    assert!(!second.is_end_stream() && !progress.has_ended());
}

proptest! {
    /// Each number is how many frames a sending takes before it fails. The last sending takes all.
    #[test]
    fn every_sending_begins_with_the_first_byte(
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40_000), 0..6),
        taken in prop::collection::vec(0_usize..5, 0..6),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let pieces: Vec<Bytes> = pieces.into_iter().map(Bytes::from).collect();
        let whole = pieces.concat();
        runtime.block_on(async {
            let body = resendable(pieces);
            let mut most = 0;
            for frames in taken {
                let Some(mut sending) = body.next_sending() else {
                    prop_assert!(most > KEPT_BYTES_MAX, "{most} bytes fit");
                    return Ok(());
                };
                let mut sent = Vec::new();
                for _ in 0..frames {
                    sent.extend_from_slice(&frame(&mut sending).await.unwrap());
                }
                prop_assert!(whole.starts_with(&sent));
                most = most.max(sent.len());
            }
            match body.next_sending() {
                Some(last) => prop_assert_eq!(last.collect().await.unwrap().to_bytes(), whole),
                None => prop_assert!(most > KEPT_BYTES_MAX, "{most} bytes fit"),
            }
            Ok(())
        })?;
    }
}

fn resendable(pieces: Vec<Bytes>) -> ResendableBody {
    let frames = pieces.into_iter().map(|piece| Ok::<_, std::io::Error>(Frame::data(piece)));
    ResendableBody::new(StreamBody::new(stream::iter(frames)), &Progress::default())
}

/// The bytes of the next frame. Empty at the end.
async fn frame(body: &mut RequestBody) -> Result<Bytes, BoxError> {
    let mut body = pin!(body);
    let frame = poll_fn(|cx| body.as_mut().poll_frame(cx)).await.transpose()?;
    Ok(frame.and_then(|frame| frame.into_data().ok()).unwrap_or_default())
}

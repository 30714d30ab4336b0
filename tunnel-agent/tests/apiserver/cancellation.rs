//! A caller that stops listening cancels its request at the API server at once.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;
use tunnel_agent::apiserver::Timeouts;

use crate::fake::{get, http2, pair, read_head, soon, write};

#[tokio::test]
async fn dropping_an_idle_http_2_watch_cancels_it_and_no_other_stream() {
    let (gone, mut goings) = mpsc::channel(1);
    let (_scope, fake, api_server) = pair(&["h2"], Timeouts::default(), move |connection, _| {
        let gone = gone.clone();
        http2(connection, move |_| {
            let notice = Notice(gone.clone());
            async move { Response::new(StreamBody::new(one_event_then_silence(notice))) }
        })
    })
    .await;
    let mut watch = soon(api_server.send(get("/watch"))).await.unwrap();
    let mut neighbour = soon(api_server.send(get("/watch"))).await.unwrap();
    soon(watch.body_mut().frame()).await.unwrap().unwrap();
    soon(neighbour.body_mut().frame()).await.unwrap().unwrap();

    drop(watch);

    soon(goings.recv()).await.unwrap();
    assert_eq!(fake.connections(), 1);
    assert!(goings.try_recv().is_err(), "the neighbour was cancelled, too");
}

#[tokio::test]
async fn dropping_an_idle_watch_over_http_1_closes_its_connection() {
    let (gone, mut goings) = mpsc::channel(1);
    let (_scope, _fake, api_server) = pair(&["http/1.1"], Timeouts::default(), move |mut connection, _| {
        let gone = gone.clone();
        async move {
            read_head(&mut connection).await;
            write(&mut connection, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nevent\r\n")
                .await;
            let _ = connection.read_u8().await;
            gone.send(()).await.unwrap();
        }
    })
    .await;
    let mut watch = soon(api_server.send(get("/watch"))).await.unwrap();
    soon(watch.body_mut().frame()).await.unwrap().unwrap();

    drop(watch);

    soon(goings.recv()).await.unwrap();
}

#[tokio::test]
async fn dropping_a_request_before_its_answer_is_seen_by_the_server() {
    for protocol in ["h2", "http/1.1"] {
        let (come, mut comings) = mpsc::channel(1);
        let (gone, mut goings) = mpsc::channel(1);
        let (_scope, _fake, api_server) = pair(&[protocol], Timeouts::default(), move |mut connection, _| {
            let (come, gone) = (come.clone(), gone.clone());
            async move {
                if protocol == "h2" {
                    return http2(connection, move |_| {
                        let (come, notice) = (come.clone(), Notice(gone.clone()));
                        async move {
                            come.send(()).await.unwrap();
                            std::future::pending::<()>().await;
                            drop(notice);
                            Response::new(http_body_util::Empty::new())
                        }
                    })
                    .await;
                }
                read_head(&mut connection).await;
                come.send(()).await.unwrap();
                let _ = connection.read_u8().await;
                gone.send(()).await.unwrap();
            }
        })
        .await;
        let mut asking = Box::pin(api_server.send(get("/")));
        tokio::select! {
            _ = &mut asking => panic!("there is no answer"),
            come = soon(comings.recv()) => come.unwrap(),
        }

        drop(asking);

        soon(goings.recv()).await.unwrap();
    }
}

#[tokio::test]
async fn dropping_an_answer_ends_the_upload_that_is_still_running() {
    for protocol in ["h2", "http/1.1"] {
        let (dropped, mut droppings) = mpsc::channel(1);
        let (_scope, _fake, api_server) =
            pair(&[protocol], Timeouts::default(), move |mut connection, _| async move {
                if protocol == "h2" {
                    return http2(connection, |request: Request<hyper::body::Incoming>| async move {
                        Response::new(request.into_body())
                    })
                    .await;
                }
                read_head(&mut connection).await;
                write(&mut connection, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nevent\r\n")
                    .await;
                std::future::pending().await
            })
            .await;
        let upload = StreamBody::new(one_event_then_silence(Notice(dropped)));
        let mut answer = soon(api_server.send(Request::post("/").body(upload).unwrap())).await.unwrap();
        soon(answer.body_mut().frame()).await.unwrap().unwrap();

        drop(answer);

        soon(droppings.recv()).await.unwrap();
    }
}

/// Reports on its channel that it was dropped.
struct Notice(mpsc::Sender<()>);

impl Drop for Notice {
    fn drop(&mut self) {
        // Full or closed: a report was sent before, or nobody receives it.
        let _ = self.0.try_send(());
    }
}

fn one_event_then_silence(
    notice: Notice,
) -> impl futures::Stream<Item = Result<Frame<Bytes>, std::io::Error>> + Send + 'static {
    futures::stream::unfold((notice, 0), |(notice, piece)| async move {
        if piece == 1 {
            std::future::pending::<()>().await;
        }
        Some((Ok(Frame::data("event".into())), (notice, piece + 1)))
    })
}

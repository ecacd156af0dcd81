//! A test server in place of Prometheus: a closure gives its answers, on a port of its own.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;

use super::prometheus::PrometheusServerAddress;

/// Answers requests until it is dropped.
pub(super) struct TestPrometheus {
    at: SocketAddr,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl TestPrometheus {
    /// `answer` gets the request's path with its query, and returns a body.
    pub(super) fn answering(answer: impl FnMut(&str) -> String + Send + 'static) -> TestPrometheus {
        TestPrometheus::listening(TcpListener::bind("127.0.0.1:0").unwrap(), answer)
    }

    /// The same on an existing listener.
    pub(super) fn listening(
        listener: TcpListener,
        mut answer: impl FnMut(&str) -> String + Send + 'static,
    ) -> TestPrometheus {
        let at = listener.local_addr().unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Relaxed) {
                    return;
                }
                // Fails if the client closes the connection early.
                let _ = serve(stream.unwrap(), &mut answer);
            }
        });
        TestPrometheus { at, is_over, thread: Some(thread) }
    }

    pub(super) fn address(&self) -> PrometheusServerAddress {
        format!("http://{}", self.at).parse().unwrap()
    }
}

fn serve(mut stream: TcpStream, answer: &mut impl FnMut(&str) -> String) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let head = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
    let body = answer(head.split(' ').nth(1).unwrap_or_default());
    // Answers are sent one after the other, so no client may keep its connection.
    write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len())?;
    stream.write_all(body.as_bytes())
}

impl Drop for TestPrometheus {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        let _ = TcpStream::connect(self.at);
        self.thread.take().map(JoinHandle::join);
    }
}

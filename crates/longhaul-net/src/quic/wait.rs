//! Blocks a thread on a future of quinn's, which needs nothing but a waker. (A Tokio handle would
//! want its runtime to outlive the lane's thread.)

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for the future's result. `None` if `deadline` passes before.
pub(crate) fn wait<T>(future: impl Future<Output = T>, deadline: Option<Instant>) -> Option<T> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let (mut cx, mut future) = (Context::from_waker(&waker), pin!(future));
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return None;
        }
        if let Poll::Ready(value) = future.as_mut().poll(&mut cx) {
            return Some(value);
        }
        match left {
            None => thread::park(),
            Some(left) => thread::park_timeout(left),
        }
    }
}

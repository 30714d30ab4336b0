//! Values that tasks own, and give away when they are asked for them.
//!
//! A task that accepts or copies owns its sockets. For a handover it stops and gives them away. It gets them back
//! if there is no handover after all, also when the question was dropped.

use std::collections::HashMap;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{mpsc, oneshot};

/// The tasks that own a `T`. Clones share them.
#[derive(Debug)]
pub(super) struct Owners<T>(Arc<Mutex<OwnerList<T>>>);

#[derive(Debug)]
struct OwnerList<T> {
    next: u64,
    owners: HashMap<u64, mpsc::Sender<Ask<T>>>,
}

/// A task's place in the list, until this is dropped.
#[derive(Debug)]
pub(super) struct Owner<T> {
    owners: Owners<T>,
    number: u64,
    asked: mpsc::Receiver<Ask<T>>,
}

/// The question for the value.
pub(super) type Ask<T> = oneshot::Sender<Parked<T>>;

/// A value that its task has given away, until this is dropped.
#[derive(Debug)]
#[must_use = "the task gets its value back when this is dropped"]
pub(super) struct Parked<T>(Option<(T, oneshot::Sender<T>)>);

impl<T> Owners<T> {
    /// Adds a task. It can be asked from now on, also before it runs.
    pub(super) fn register(&self) -> Owner<T> {
        let (sender, asked) = mpsc::channel(1);
        let mut list = self.list();
        let number = list.next;
        list.next += 1;
        list.owners.insert(number, sender);
        drop(list);
        Owner { owners: self.clone(), number, asked }
    }

    /// The values of all tasks that have not ended. Cancel-safe: all get theirs back.
    pub(super) async fn collect(&self) -> Vec<Parked<T>> {
        let owners: Vec<_> = self.list().owners.values().cloned().collect();
        let mut answers = Vec::new();
        for owner in owners {
            let (ask, answer) = oneshot::channel();
            // A task that has ended has nothing to give.
            if owner.send(ask).await.is_ok() {
                answers.push(answer);
            }
        }
        let mut values = Vec::new();
        for answer in answers {
            values.extend(answer.await);
        }
        values
    }

    fn list(&self) -> MutexGuard<'_, OwnerList<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Owner<T> {
    /// Waits for the question. Cancel-safe.
    pub(super) async fn asked(&mut self) -> Ask<T> {
        match self.asked.recv().await {
            Some(ask) => ask,
            None => pending().await,
        }
    }

    /// Gives the value away. Returns it when it comes back, and `None` if it does not. Then another process has
    /// it. A further question waits until the value is back.
    pub(super) async fn give(&mut self, value: T, ask: Ask<T>) -> Option<T> {
        let (back, returned) = oneshot::channel();
        match ask.send(Parked(Some((value, back)))) {
            Ok(()) => returned.await.ok(),
            // Nobody waits for the answer any more.
            Err(mut parked) => Some(parked.0.take()?.0),
        }
    }
}

impl<T> Parked<T> {
    /// The value, which stays with its task.
    pub(super) fn value(&self) -> Option<&T> {
        self.0.as_ref().map(|(value, _)| value)
    }

    /// Takes the value from its task for good.
    pub(super) fn take(mut self) -> Option<T> {
        self.0.take().map(|(value, _)| value)
    }
}

impl<T> Drop for Parked<T> {
    fn drop(&mut self) {
        if let Some((value, back)) = self.0.take() {
            // A task that has ended needs it no more.
            let _ = back.send(value);
        }
    }
}

impl<T> Drop for Owner<T> {
    fn drop(&mut self) {
        self.owners.list().owners.remove(&self.number);
    }
}

impl<T> Clone for Owners<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for Owners<T> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(OwnerList { next: 0, owners: HashMap::new() })))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    /// A task that owns a number and counts how often it got it back.
    async fn own(mut owner: Owner<u32>, mut value: u32) -> u32 {
        loop {
            let ask = owner.asked().await;
            match owner.give(value, ask).await {
                Some(returned) => value = returned + 1,
                None => return value,
            }
        }
    }

    #[tokio::test]
    async fn values_come_back_unless_they_are_taken() {
        let owners = Owners::default();
        let asking = async {
            // Nobody waits for the task to have its value again.
            drop(owners.collect().await);
            // Dropped before the task has answered.
            assert!(futures::poll!(Box::pin(owners.collect())).is_pending());
            let parked = owners.collect().await;
            let values: Vec<Option<u32>> = parked.into_iter().map(Parked::take).collect();
            values
        };

        let both = async { tokio::join!(own(owners.register(), 7), asking) };
        let (value, values) = timeout(SOON, both).await.unwrap();

        assert_eq!(values, [Some(value)]);
        assert_eq!(value, 9);
        assert!(owners.collect().await.is_empty());
    }

    #[tokio::test]
    async fn a_task_that_has_ended_is_not_waited_for() {
        let owners = Owners::<u32>::default();
        drop(owners.register());

        assert!(owners.collect().await.is_empty());
    }
}

//! A key that ends a table on a terminal.

use std::io::{self, IsTerminal, Read};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::sync::mpsc;

/// Keys as they are pressed; the terminal is as it was once this is dropped.
#[derive(Debug)]
pub(super) struct Keys {
    before: Option<Termios>,
    pressed: mpsc::Receiver<u8>,
}

impl Keys {
    /// From now on each key comes by itself and is not shown. Where standard input is no terminal none ever comes.
    pub(super) fn listen() -> Self {
        let (tell, pressed) = mpsc::channel(1);
        let before = unbuffered();
        if before.is_some() {
            // A read cannot be given up, so it is a thread's that ends with the process.
            std::thread::spawn(move || {
                let mut key = [0];
                while io::stdin().read(&mut key).is_ok_and(|count| count == 1) {
                    let [pressed] = key;
                    if tell.blocking_send(pressed).is_err() {
                        return;
                    }
                }
            });
        }
        Self { before, pressed }
    }

    /// Returns once somebody presses `q`.
    pub(super) async fn quit(&mut self) {
        loop {
            match self.pressed.recv().await {
                Some(b'q' | b'Q') => return,
                Some(_) => {}
                None => std::future::pending().await,
            }
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // Nobody is left to be told.
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}

fn unbuffered() -> Option<Termios> {
    if !io::stdin().is_terminal() {
        return None;
    }
    let before = tcgetattr(io::stdin()).ok()?;
    let mut now = before.clone();
    now.local_modes
        .remove(LocalModes::ICANON | LocalModes::ECHO);
    tcsetattr(io::stdin(), OptionalActions::Now, &now).ok()?;
    Some(before)
}

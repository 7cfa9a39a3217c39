//! The key that quits a table on a terminal.

use std::io::{self, IsTerminal, Read};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::sync::mpsc;

/// Receiver of pressed keys; the terminal's mode is restored on drop.
#[derive(Debug)]
pub(super) struct KeyReader {
    before: Option<Termios>,
    pressed: mpsc::Receiver<u8>,
}

impl KeyReader {
    /// Switches the terminal to unbuffered input without echo. If standard input is no terminal, no key is ever
    /// received.
    pub(super) fn listen() -> Self {
        let (sender, pressed) = mpsc::channel(1);
        let before = unbuffered();
        if before.is_some() {
            // A read cannot be canceled, so it runs on a thread that ends with the process.
            std::thread::spawn(move || {
                let mut key = [0];
                while io::stdin().read(&mut key).is_ok_and(|count| count == 1) {
                    let [pressed] = key;
                    if sender.blocking_send(pressed).is_err() {
                        return;
                    }
                }
            });
        }
        Self { before, pressed }
    }

    /// Returns once the user presses `q`.
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

impl Drop for KeyReader {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // An error cannot be reported here.
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
    now.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
    tcsetattr(io::stdin(), OptionalActions::Now, &now).ok()?;
    Some(before)
}

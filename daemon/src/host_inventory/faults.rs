//! Logs each fault once. A fault is logged again only if it disappears and returns.

/// The current faults of one kind. Each fault is a line for the log.
#[derive(Debug, Default)]
pub struct FaultLog(Vec<String>);

impl FaultLog {
    /// Replaces the current faults with `faults`, and calls `log` for each new one.
    pub fn report_faults(&mut self, faults: impl IntoIterator<Item = String>, log: impl Fn(&str)) {
        let previous_faults = std::mem::replace(&mut self.0, faults.into_iter().collect());
        for fault in self
            .0
            .iter()
            .filter(|fault| !previous_faults.contains(fault))
        {
            log(fault);
        }
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn a_fault_is_logged_again_only_after_it_was_solved() {
        let mut faults = FaultLog::default();
        let logged = RefCell::new(Vec::new());
        for now in [&["a"][..], &["a", "b"], &["b"], &["a", "b"], &[], &["b"]] {
            let now = now.iter().map(|fault| (*fault).to_owned());
            faults.report_faults(now, |fault| logged.borrow_mut().push(fault.to_owned()));
        }
        assert_eq!(logged.into_inner(), ["a", "b", "a", "b"]);
        assert_eq!(faults.count(), 1);
    }
}

//! Parses records of the kernel's log in the format of /dev/kmsg
//! (Documentation/ABI/testing/dev-kmsg in the kernel's sources).

use super::HistoryRule;
use crate::class::LoggedFaults;

/// The text that root writes to the log when a device is repaired. The device's id follows it.
const REPAIRED: &str = "boathook: repaired ";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelLine {
    /// Whether the kernel itself wrote the record. Processes can write records to /dev/kmsg, too.
    is_of_kernel: bool,
    text: String,
}

impl KernelLine {
    /// Parses a record of /dev/kmsg: `priority,sequence,time,flags;text`. Further lines of the
    /// record, which have structured values, are ignored. Returns `None` if the bytes are no
    /// such record.
    pub fn parse(record: &[u8]) -> Option<Self> {
        let record = String::from_utf8_lossy(record);
        let (head, text) = record.lines().next()?.split_once(';')?;
        let priority: u32 = head.split(',').next()?.parse().ok()?;
        Some(KernelLine {
            // The bits above the lowest three are the syslog facility: 0 is the kernel, and the
            // kernel does not let a process use it.
            is_of_kernel: priority >> 3 == 0,
            text: text.to_owned(),
        })
    }

    /// Returns whether the record is the kernel's, and begins with `line` and the number and words
    /// of a fault. Only the beginning is compared, because the rest of a record may have names that
    /// a local user can choose, such as those of processes.
    pub(crate) fn has_fault(&self, line: &str, faults: &LoggedFaults) -> bool {
        let Some(after) = self.strip_line(line) else {
            return false;
        };
        let digits = after.find(|c: char| !c.is_ascii_digit());
        let number = &after[..digits.unwrap_or(after.len())];
        let is_fault = |number| faults.codes.contains(&number);
        let words = faults.words.as_ref();
        number.parse().is_ok_and(is_fault) && words.is_none_or(|words| words.is_match(after))
    }

    /// Returns whether the record is the kernel's, begins with `line`, and reports the end of the
    /// fault.
    pub(crate) fn ends_fault(&self, line: &str, faults: &LoggedFaults) -> bool {
        let repaired = faults.repaired.as_ref();
        let after = self.strip_line(line);
        after.is_some_and(|after| repaired.is_some_and(|repaired| repaired.is_match(after)))
    }

    /// Returns the rest of the record after `line`. Returns `None` if the record does not begin with
    /// `line`, or if a process wrote it.
    fn strip_line(&self, line: &str) -> Option<&str> {
        self.text.strip_prefix(line).filter(|_| self.is_of_kernel)
    }

    /// Returns whether the record can change the outcome of a check of the device with this id.
    pub fn concerns(&self, device: &str, rule: &HistoryRule) -> bool {
        let HistoryRule::Unlogged { line, faults, .. } = rule else {
            return false;
        };
        self.has_fault(line, faults) || self.ends_fault(line, faults) || self.is_repair_of(device)
    }

    /// Returns whether root reports by this record that the device with this id was repaired.
    pub(crate) fn is_repair_of(&self, device: &str) -> bool {
        let repaired = self.text.trim_end().strip_prefix(REPAIRED);
        !self.is_of_kernel && repaired == Some(device)
    }

    /// Returns the reason why a device is unhealthy: at most 200 characters of the record, with
    /// control characters escaped, and the advice.
    pub(crate) fn reason(&self, advice: Option<&str>) -> String {
        let advice = advice.map(|advice| format!("; {advice}"));
        let text: String = self
            .text
            .chars()
            .take(200)
            .flat_map(char::escape_debug)
            .collect();
        format!(
            "the kernel has logged: {text}{}",
            advice.unwrap_or_default()
        )
    }
}

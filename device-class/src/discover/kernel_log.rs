//! Parses records of the kernel's log in the format of /dev/kmsg
//! (Documentation/ABI/testing/dev-kmsg in the kernel's sources).

use super::DeferredRule;
use crate::class::LoggedFaults;

/// The beginning of the line that root writes to the kernel's log after a device was repaired. The
/// id of the device follows.
const REPAIR_PREFIX: &str = "boathook: repaired ";

/// A record of the kernel's log. Each read(2) of /dev/kmsg returns one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelLogRecord {
    /// Whether the kernel wrote the record, so that it can report a fault. Otherwise a process
    /// wrote it to /dev/kmsg.
    is_from_kernel: bool,
    text: String,
}

impl KernelLogRecord {
    /// Parses a record as read from /dev/kmsg: `priority,sequence,time,flags;text`. Further lines
    /// of the record contain structured values and are ignored. Returns `None` if the bytes do not
    /// have this format.
    pub fn parse(record: &[u8]) -> Option<Self> {
        let record = String::from_utf8_lossy(record);
        let (header, text) = record.lines().next()?.split_once(';')?;
        let priority: u32 = header.split(',').next()?.parse().ok()?;
        Some(KernelLogRecord {
            // The bits above the lowest three are the syslog facility. Facility 0 means the kernel,
            // which does not let a process use it.
            is_from_kernel: priority >> 3 == 0,
            text: text.to_owned(),
        })
    }

    /// Returns whether the kernel wrote the record, and the record begins with `line_prefix` and
    /// the number of a fault. If `faults` has a pattern for faults, the text after the prefix must
    /// match it. The prefix and the number must be at the beginning, because the rest may have
    /// names that a local user chooses, such as names of processes.
    pub(crate) fn has_fault(&self, line_prefix: &str, faults: &LoggedFaults) -> bool {
        let Some(text_after_prefix) = self.strip_kernel_prefix(line_prefix) else {
            return false;
        };
        let digit_count = text_after_prefix.find(|c: char| !c.is_ascii_digit());
        let number = &text_after_prefix[..digit_count.unwrap_or(text_after_prefix.len())];
        let is_fault = |number| faults.codes.contains(&number);
        let fault_pattern = faults.fault_pattern.as_ref();
        number.parse().is_ok_and(is_fault)
            && fault_pattern.is_none_or(|pattern| pattern.is_match(text_after_prefix))
    }

    /// Returns whether the kernel wrote the record, and the record begins with `line_prefix` and
    /// reports that the fault has ended.
    pub(crate) fn ends_fault(&self, line_prefix: &str, faults: &LoggedFaults) -> bool {
        let recovery_pattern = faults.recovery_pattern.as_ref();
        let text_after_prefix = self.strip_kernel_prefix(line_prefix);
        text_after_prefix.is_some_and(|text_after_prefix| {
            recovery_pattern.is_some_and(|pattern| pattern.is_match(text_after_prefix))
        })
    }

    /// Returns the text of the record after `line_prefix`. Returns `None` if the record does not
    /// begin with `line_prefix`, or if the kernel did not write it.
    fn strip_kernel_prefix(&self, line_prefix: &str) -> Option<&str> {
        self.text
            .strip_prefix(line_prefix)
            .filter(|_| self.is_from_kernel)
    }

    /// Returns whether the record can change the outcome of this health check for the device with
    /// this id. This is always false for a check that does not read the kernel's log.
    pub fn concerns_device(&self, device_id: &str, rule: &DeferredRule) -> bool {
        let DeferredRule::NoLoggedFault {
            line_prefix,
            faults,
            ..
        } = rule
        else {
            return false;
        };
        self.has_fault(line_prefix, faults)
            || self.ends_fault(line_prefix, faults)
            || self.reports_repair(device_id)
    }

    /// Returns whether the record is the line `boathook: repaired ID` for the device with this id,
    /// which root writes to /dev/kmsg after a repair.
    pub(crate) fn reports_repair(&self, device_id: &str) -> bool {
        let repaired_id = self.text.trim_end().strip_prefix(REPAIR_PREFIX);
        !self.is_from_kernel && repaired_id == Some(device_id)
    }

    /// Returns the reason why a device is unhealthy: at most 200 characters of the record with
    /// control characters escaped, and then the advice.
    pub(crate) fn describe_fault(&self, advice: Option<&str>) -> String {
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

//! Parses records of the kernel's log in the format of /dev/kmsg
//! (Documentation/ABI/testing/dev-kmsg in the kernel's sources).

use super::HistoryRule;
use crate::class::LoggedFaults;

/// The prefix of the record that root writes to the kernel's log after a device was repaired. The
/// id of the device follows it.
const REPAIR_PREFIX: &str = "boathook: repaired ";

/// A record of the kernel's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelLogRecord {
    /// Whether the kernel itself wrote the record, and not a process by writing to /dev/kmsg.
    is_from_kernel: bool,
    text: String,
}

impl KernelLogRecord {
    /// Parses a record of /dev/kmsg: `priority,sequence,time,flags;text`. Further lines of the
    /// record, which have structured values, are ignored. Returns `None` if the bytes are not
    /// such a record.
    pub fn parse(record: &[u8]) -> Option<Self> {
        let record = String::from_utf8_lossy(record);
        let (header, text) = record.lines().next()?.split_once(';')?;
        let priority: u32 = header.split(',').next()?.parse().ok()?;
        Some(KernelLogRecord {
            // The bits above the lowest three are the syslog facility. Facility 0 is the kernel's,
            // and the kernel lets no process use it.
            is_from_kernel: priority >> 3 == 0,
            text: text.to_owned(),
        })
    }

    /// Returns whether the kernel wrote the record, and the record begins with `line_prefix`, the
    /// number of a fault and the fault's text. The prefix and the number are compared at the
    /// beginning only, because the rest of a record may have names that a local user can choose,
    /// such as those of processes.
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
    /// reports the end of the fault.
    pub(crate) fn ends_fault(&self, line_prefix: &str, faults: &LoggedFaults) -> bool {
        let recovery_pattern = faults.recovery_pattern.as_ref();
        let text_after_prefix = self.strip_kernel_prefix(line_prefix);
        text_after_prefix.is_some_and(|text_after_prefix| {
            recovery_pattern.is_some_and(|pattern| pattern.is_match(text_after_prefix))
        })
    }

    /// Returns the text of the record after `line_prefix`. Returns `None` if the record does not
    /// begin with `line_prefix`, or if a process wrote it.
    fn strip_kernel_prefix(&self, line_prefix: &str) -> Option<&str> {
        self.text
            .strip_prefix(line_prefix)
            .filter(|_| self.is_from_kernel)
    }

    /// Returns whether the record can change the outcome of a check of the device with this id.
    pub fn concerns_device(&self, device_id: &str, rule: &HistoryRule) -> bool {
        let HistoryRule::NoLoggedFault {
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

    /// Returns whether root wrote the record to report that the device with this id was repaired.
    pub(crate) fn reports_repair(&self, device_id: &str) -> bool {
        let repaired_id = self.text.trim_end().strip_prefix(REPAIR_PREFIX);
        !self.is_from_kernel && repaired_id == Some(device_id)
    }

    /// Returns the reason why a device is unhealthy: at most 200 characters of the record, with
    /// control characters escaped, and the advice.
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

//! File descriptors: as many as the machine allows, and a clear word where that is too few.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::exit::Failure;

/// Raises this process's limit as far as it may, and returns it. `None` is without limit.
pub(crate) fn raise() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return limit.current;
    }
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    }
}

/// Says whether so many descriptors can be had.
pub(crate) fn check(need: u64, limit: Option<u64>) -> Result<(), Failure> {
    match limit {
        Some(limit) if need > limit => Err(Failure::bad(format_args!(
            "this run needs {need} file descriptors, and this process may open {limit}\n  \
             raise the limit with `ulimit -Hn {need} && ulimit -n {need}` as root, or with \
             LimitNOFILE={need} in a systemd unit, or `--ulimit nofile={need}` of a container; \
             or use fewer clients"
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_are_named_with_the_number_needed() {
        assert!(check(100, Some(100)).is_ok());
        assert!(check(u64::MAX, None).is_ok());
        let failure = check(6_000, Some(1_024)).expect_err("too few");
        let crate::exit::Message::Plain(text) = failure.message else {
            panic!("it points into no file");
        };
        assert!(text.contains("6000") && text.contains("1024"), "{text}");
        assert_eq!(failure.exit.code(), 104);
    }
}

//! Limit of file descriptors: raised as far as possible, with a clear error if it is too low.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use scenario::Scenario;

use crate::exit::Failure;

/// Raises the limit of this process as far as permitted and returns it. `None` means no limit.
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

/// Raises the limit and checks that it suffices for a scenario's clients.
pub(crate) fn check(scenario: &Scenario) -> Result<(), Failure> {
    // The limit is raised first, because the number of workers depends on it.
    let limit = raise();
    enough(
        engine::files_needed(scenario),
        engine::workers(scenario),
        limit,
    )
}

fn enough(need: u64, workers: u32, limit: Option<u64>) -> Result<(), Failure> {
    match limit {
        Some(limit) if need > limit => Err(Failure::bad(format_args!(
            "this run needs {need} file descriptors {}, and may open {limit}\n  \
             raise the limit with `ulimit -Hn {need} && ulimit -n {need}` as root, or with \
             LimitNOFILE={need} in a systemd unit, or `--ulimit nofile={need}` of a container; \
             or use more workers, or fewer clients",
            match workers {
                1 => "in its one worker".to_owned(),
                workers => format!("in each of its {workers} workers"),
            }
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_descriptors_are_an_error_with_the_number_needed() {
        assert!(enough(100, 1, Some(100)).is_ok());
        assert!(enough(u64::MAX, 1, None).is_ok());
        let failure = enough(6_000, 2, Some(1_024)).expect_err("too few");
        let crate::exit::Message::Plain(text) = failure.message else {
            panic!("it points into no file");
        };
        assert!(text.contains("6000") && text.contains("1024"), "{text}");
        assert_eq!(failure.exit.code(), 104);
    }
}

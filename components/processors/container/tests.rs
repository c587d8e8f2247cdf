use profcol_profile::KeyValue;

use super::*;

#[test]
fn adds_what_the_path_tells_and_leaves_what_is_there() {
    let id = "0123456789abcdef".repeat(4);
    let check = |before: &[(&str, &str)], expected: &[(&str, &str)]| {
        let pairs = |pairs: &[(&str, &str)]| -> Attributes {
            let pairs = pairs.iter();
            let replaced = pairs.map(|(key, value)| (key, value.replace("ID", &id)));
            replaced
                .map(|(key, value)| KeyValue::new(key, value.as_str()))
                .collect()
        };
        let (mut attributes, expected) = (pairs(before), pairs(expected));
        let is_changed = attributes != expected;
        assert_eq!(add(&mut attributes), is_changed, "{before:?}");
        assert_eq!(attributes, expected, "{before:?}");
    };
    let docker = (CGROUP, "/system.slice/docker-ID.scope");
    let (known, runtime) = (("container.id", "ID"), ("container.runtime.name", "docker"));
    check(&[], &[]);
    check(&[(CGROUP, "/user.slice")], &[(CGROUP, "/user.slice")]);
    check(&[docker], &[docker, known, runtime]);
    check(
        &[("container.id", "x"), docker],
        &[("container.id", "x"), docker, runtime],
    );
    check(
        &[(CGROUP, "/ecs/task/ID")],
        &[(CGROUP, "/ecs/task/ID"), known],
    );
}

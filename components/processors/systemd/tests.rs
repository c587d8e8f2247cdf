use profcol_profile::KeyValue;

use super::*;

#[test]
fn adds_what_the_path_tells_and_leaves_what_is_there() {
    let check = |cgroup: &str, expected: &[&str]| {
        let mut attributes = vec![
            KeyValue::new("systemd.slice", "mine"),
            KeyValue::new(CGROUP, cgroup),
        ];
        assert_eq!(add(&mut attributes), !expected.is_empty(), "{cgroup}");
        let shown = |it: &KeyValue| {
            let text = profcol_labels::text(&it.value).unwrap_or_default();
            format!("{}={text}", it.key)
        };
        let found: Vec<String> = attributes.iter().skip(2).map(shown).collect();
        assert_eq!(found, expected, "{cgroup}");
        assert_eq!(attributes[0].value, "mine".into());
    };
    check("/", &[]);
    check(
        "/system.slice/nginx.service",
        &["systemd.unit=nginx.service"],
    );
    check(
        "/user.slice/user-1000.slice/user@1000.service/app.slice/vte-spawn-1.scope",
        &[
            "systemd.unit=user@1000.service",
            "systemd.user_unit=vte-spawn-1.scope",
            "systemd.user_slice=app.slice",
            "systemd.owner_uid=1000",
        ],
    );
    check(
        "/user.slice/user-0.slice/session-3.scope",
        &[
            "systemd.unit=session-3.scope",
            "systemd.session=3",
            "systemd.owner_uid=0",
        ],
    );
}

use profcol_component::testkit::batch;
use profcol_profile::KeyValue;

use super::*;
use crate::shared::testkit::Keep;

#[test]
fn adds_what_the_path_tells_and_leaves_what_is_there() {
    let check = |cgroup: &str, expected: &[&str]| {
        let mut attributes = vec![
            KeyValue::new("systemd.slice", "mine"),
            KeyValue::new(CGROUP, cgroup),
        ];
        assert_eq!(add(&mut attributes, None), !expected.is_empty(), "{cgroup}");
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

#[tokio::test]
async fn machines_are_told_where_the_host_is_this_one() {
    let id = "6c5e1bd2f1d74b3f8a5be1c0b9d8a7f6";
    let mut host = Host::default();
    host.name = "this".to_owned();
    host.id = Some(id.to_owned());
    let own = ("host.name", "this");
    let path = (CGROUP, "/system.slice/nginx.service");
    let other = ("host.name", "another");
    for (assume_local, attributes, expected) in [
        (false, vec![own, path], id),
        (true, vec![path], id),
        (false, vec![path], ""),
        (true, vec![other, path], ""),
        // What is no process of a known cgroup is no unit's.
        (false, vec![own], ""),
    ] {
        let processor = SystemdProcessor {
            config: SystemdConfig { assume_local },
            host: OnceLock::from(host.clone()),
        };
        let mut batch = batch(1);
        batch.profiles.update_resources(|resource| {
            let attributes = attributes.iter();
            resource.attributes = attributes
                .map(|(key, value)| KeyValue::new(key, *value))
                .collect();
            true
        });
        let keep = Keep::default();
        processor.process(batch, &keep).await.unwrap();
        let left = keep.into_inner().remove(0);
        let found = &left.model().resources[0]
            .resource
            .as_ref()
            .unwrap()
            .attributes;
        let found = text_of(found, "systemd.machine_id");
        assert_eq!(
            found.as_deref().unwrap_or_default(),
            expected,
            "{attributes:?}"
        );
    }
}

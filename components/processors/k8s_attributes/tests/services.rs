//! The service attributes of recorded pods, from their annotations, labels, owners and images.

use super::*;

const SERVICE: &str = "wait_for_metadata: true, extract: {otel_annotations: OTEL, metadata: \
    [service.namespace, service.name, service.version, service.instance.id]}";

#[tokio::test]
async fn service_attributes_follow_the_conventions() {
    let server = Server::start(recorded::answer).await;
    let started = async |otel: &str| {
        let options = server.options(&SERVICE.replace("OTEL", otel));
        Running::start(&options).await
    };
    let running = started("false").await;
    let names = async |running: &Running, pod: &str, container_name: &str| {
        let id = container(pod, container_name);
        let found = running.filled(&[("container.id", &id)]).await;
        let keys = ["namespace", "name", "version", "instance.id"];
        keys.map(|key| shown(&found, &format!("service.{key}")))
    };
    let web = "web-5d4f8c7b9-abcde";
    let check = async |pod: &str, container_name: &str, expected: [&str; 2]| {
        let instance = format!("shop.{pod}.{container_name}");
        let expected = ["shop", expected[0], expected[1], &instance];
        assert_eq!(names(&running, pod, container_name).await, expected);
    };
    check(web, "main", ["web", "1.2"]).await;
    // The version of an image without a tag is unknown.
    check(web, "proxy", ["web", ""]).await;
    check("st-0", "main", ["st", "1.2"]).await;
    check("da-0", "main", ["da", "1.2"]).await;
    check("tidy-28391234-x", "main", ["tidy", "1.2"]).await;
    check("static-n1", "main", ["static-n1", "1.2"]).await;
    let annotated = started("true").await;
    assert_eq!(names(&annotated, web, "main").await[1], "webshop");

    let mut labelled = pod("st-0");
    let mut put = async |label: &str, value: &str, expected: [&str; 2]| {
        labelled["metadata"]["labels"][format!("app.kubernetes.io/{label}")] = value.into();
        let pod = serde_json::from_value(labelled.clone()).unwrap();
        let change = Change::Put(pod);
        running.processor.directory.change_pods(change);
        check("st-0", "main", expected).await;
    };
    put("name", "db", ["db", "1.2"]).await;
    put("instance", "db-orders", ["db-orders", "1.2"]).await;
    put("version", "7", ["db-orders", "7"]).await;
    // Existing attributes are kept.
    let id = container("st-0", "main");
    let own = [("container.id", &*id), ("service.name", "own")];
    assert_eq!(shown(&running.filled(&own).await, "service.name"), "own");
}

#[tokio::test]
async fn an_image_without_a_tag_uses_its_digest() {
    let server = Server::start(recorded::answer).await;
    let options = server.options(&SERVICE.replace("OTEL", "false"));
    let running = Running::start(&options).await;
    for (image, version) in [
        ("registry:5000/a", ""),
        ("a@sha256:1", "sha256:1"),
        ("registry:5000/a:2@sha256:1", "2@sha256:1"),
    ] {
        let mut changed = pod("st-0");
        changed["spec"]["containers"][0]["image"] = image.into();
        let pod = serde_json::from_value(changed).unwrap();
        let change = Change::Put(pod);
        running.processor.directory.change_pods(change);
        let id = container("st-0", "main");
        let found = running.filled(&[("container.id", &id)]).await;
        assert_eq!(shown(&found, "service.version"), version, "{image}");
    }
}

//! Batches that wait for unknown pods, with a scripted API server that starts late and a kubelet that learns late.

use super::*;

const WAIT: &str = "wait_for: 20s";

fn pod_object(object: &serde_json::Value) -> objects::Pod {
    serde_json::from_value(object.clone()).unwrap()
}

#[tokio::test]
async fn a_batch_waits_for_an_unknown_pod() {
    let server = Server::start(recorded::answer).await;
    let (port, options) = (server.port, server.options(WAIT));
    let directory = server.stop_but_keep().await;
    let running = Running::start(&options).await;
    let id = container("st-0", "main");
    let attributes = [("container.id", &*id)];
    let (found, server) = tokio::join!(running.filled(&attributes), async {
        running.reports("failed to read pods: ").await;
        Server::on(port, recorded::answer).await
    });
    assert_eq!(shown(&found, "k8s.pod.name"), "st-0");
    // A resource without a reference to a pod does not wait.
    let start = Instant::now();
    running.filled(&[("service.name", "x")]).await;
    assert!(start.elapsed() < TIMEOUT / 2);
    drop((server, directory));
}

#[tokio::test]
async fn a_batch_waits_for_a_new_container_of_a_known_pod() {
    let server = Server::start(recorded::answer).await;
    let options = server.options(&format!("{WAIT}, wait_for_metadata: true"));
    let running = Running::start(&options).await;
    let mut restarted = pod("web-5d4f8c7b9-abcde");
    let id = "5".repeat(64);
    restarted["status"]["containerStatuses"][1]["containerID"] =
        format!("containerd://{id}").into();
    let expected = restarted["status"]["containerStatuses"][1]["name"].clone();
    let cgroup = format!("/kubepods/pod{}/{id}", uid("web-5d4f8c7b9-abcde"));
    let attributes = [(CGROUP, &*cgroup)];
    // The batch comes first and waits: both run in one task.
    let (found, ()) = tokio::join!(biased; running.filled(&attributes), async {
        let change = Change::Put(pod_object(&restarted));
        running.processor.directory.change_pods(change);
    });
    assert_eq!(shown(&found, "k8s.container.name"), expected);
    let waited = running.processor.context.meter.counter(
        "profcol_metadata_waited",
        "",
        &[("processor", "k8s_attributes")],
    );
    assert_eq!(waited.get(), 1);
}

#[tokio::test]
async fn waits_only_once_for_a_pod_that_stays_unknown() {
    let server = Server::start(recorded::answer).await;
    let options = server.options("wait_for: 1s, wait_for_metadata: true");
    let running = Running::start(&options).await;
    let unknown = [("container.id", "unknown")];
    let start = Instant::now();
    running.filled(&unknown).await;
    assert!(start.elapsed() >= Duration::from_secs(1));
    for _ in 0..40 {
        running.filled(&unknown).await;
    }
    assert!(start.elapsed() < TIMEOUT, "each of them waited");
}

/// The kubelet is queried while the batch waits.
#[tokio::test]
async fn a_waiting_batch_queries_the_kubelet() {
    let served = Arc::new(Mutex::new(Vec::new()));
    let shown_pods = Arc::clone(&served);
    let server =
        Server::start(move |_| Answer::Json(200, recorded::page(&shown_pods.lock(), ""))).await;
    let options = format!(
        "{{source: kubelet, kubelet: {{endpoint: 'http://127.0.0.1:{}', poll_interval: 50ms}}, auth_type: none, {WAIT}}}",
        server.port
    );
    let running = Running::start(&options).await;
    let id = container("st-0", "main");
    let attributes = [("container.id", &*id)];
    let (found, ()) = tokio::join!(running.filled(&attributes), async {
        let before = server.requests().len();
        wait_until("another request", async || server.requests().len() > before).await;
        served.lock().push(pod("st-0").to_string());
    });
    assert_eq!(shown(&found, "k8s.pod.name"), "st-0");
}

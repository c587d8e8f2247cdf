//! A pod created like by the kubelet, through containerd's CRI.

use bytes::Bytes;
use http::HeaderMap;
use profcol_net::tls::ClientTls;
use profcol_net::{Compression, GrpcCall, GrpcClient, GrpcClientSettings, Message};
use profcol_profile::proto::{Reader, Writer, tag};
use profcol_test_harness::TIMEOUT;

use crate::runtimes::{BUSY, Runtimes};

/// The containerd namespace of Kubernetes.
const NAMESPACE: [&str; 2] = ["--namespace", "k8s.io"];
/// The image of the sandbox and of the container.
pub const IMAGE: &str = "docker.io/library/shop:5";

pub const POD_UID: &str = "8f14e45f-ceea-467f-9a36-dedd4bea2543";

/// Uses the host's network: any other would need a CNI plug-in.
const NODE: u64 = 2;

impl Runtimes {
    /// Runs the container `checkout` of the pod `checkout-0`.
    pub async fn run_in_pod(&self) -> u32 {
        self.import_for_pods();
        let client = self.cri();
        let call = async |path, request: Writer| {
            let call = GrpcCall {
                path,
                message: &Message::from(Bytes::from(request.into_vec())),
                headers: HeaderMap::new(),
                timeout: Some(TIMEOUT),
            };
            let reply = client.unary(call).await;
            let reply = reply.unwrap_or_else(|status| panic!("{path}: {status}"));
            // In each response the ID is the first field.
            let mut reader = Reader::new(&reply.message);
            match reader.tag().expect("it can be read") {
                Some(_) => String::from_utf8_lossy(reader.bytes().expect("a text")).into_owned(),
                None => String::new(),
            }
        };
        let mut request = Writer::default();
        nested(&mut request, 1, sandbox);
        let pod = call("/runtime.v1.RuntimeService/RunPodSandbox", request).await;
        let mut request = Writer::default();
        text(&mut request, 1, &pod);
        nested(&mut request, 2, container);
        nested(&mut request, 3, sandbox);
        let id = call("/runtime.v1.RuntimeService/CreateContainer", request).await;
        let mut request = Writer::default();
        text(&mut request, 1, &id);
        call("/runtime.v1.RuntimeService/StartContainer", request).await;
        self.pid_in_containerd(&NAMESPACE, &id)
    }

    /// Imports Docker's image instead of pulling one.
    fn import_for_pods(&self) {
        let (archive, image) = (self.at("root.tar"), self.at("shop.tar"));
        let sleep = "CMD [\"/bin/busybox\", \"sleep\", \"100000\"]";
        self.docker(&["import", "--change", sleep, &archive, "shop:5"])
            .expect("imported");
        self.docker(&["save", "--output", &image, "shop:5"])
            .expect("saved");
        let import = ["images", "import", "--snapshotter", "native", &image];
        self.ctr(&[&NAMESPACE[..], &import].concat())
            .expect("imported");
        // An event reports the image to the plug-in.
        self.until("the image is known to the plug-in", |it| {
            let list = [&NAMESPACE[..], &["images", "ls"]].concat();
            it.ctr(&list)
                .is_ok_and(|images| images.contains("io.cri-containerd.image=managed"))
        });
    }

    fn cri(&self) -> GrpcClient {
        let settings = GrpcClientSettings {
            endpoint: format!("unix://{}", self.containerd_socket()),
            compression: Compression::None,
            tls: ClientTls {
                insecure: true,
                ..ClientTls::default()
            },
            ..GrpcClientSettings::default()
        };
        GrpcClient::new(&settings, None, "test").expect("good settings")
    }

    pub fn remove_pods(&self) {
        let list = [&NAMESPACE[..], &["containers", "ls", "--quiet"]].concat();
        let ids = self.ctr(&list).unwrap_or_default();
        for id in ids.lines() {
            let kill = ["tasks", "kill", "--signal", "9", id];
            let _ = self.ctr(&[&NAMESPACE[..], &kill].concat());
            let remove = ["tasks", "rm", "--force", id];
            let _ = self.ctr(&[&NAMESPACE[..], &remove].concat());
        }
    }
}

fn text(message: &mut Writer, field: u32, text: &str) {
    message.bytes(tag::len(field), text.as_bytes());
}

fn nested(message: &mut Writer, field: u32, write: impl FnOnce(&mut Writer)) {
    let mut inner = Writer::default();
    write(&mut inner);
    message.bytes(tag::len(field), &inner.into_vec());
}

/// `runtime.v1.PodSandboxConfig`. Its cgroup is outside the kubelet's, which would otherwise kill it if one runs here.
fn sandbox(pod: &mut Writer) {
    nested(pod, 1, |metadata| {
        text(metadata, 1, "checkout-0");
        text(metadata, 2, POD_UID);
        text(metadata, 3, "shop");
    });
    nested(pod, 8, |linux| {
        nested(linux, 2, |security| {
            nested(security, 1, |namespaces| {
                namespaces.uint(tag::varint(1), NODE);
            });
        });
    });
}

/// `runtime.v1.ContainerConfig`, with the kubelet's labels.
fn container(container: &mut Writer) {
    nested(container, 1, |metadata| text(metadata, 1, "checkout"));
    nested(container, 2, |image| text(image, 1, IMAGE));
    for word in BUSY {
        text(container, 3, word);
    }
    for (key, value) in [
        ("io.kubernetes.container.name", "checkout"),
        ("io.kubernetes.pod.name", "checkout-0"),
        ("io.kubernetes.pod.namespace", "shop"),
        ("io.kubernetes.pod.uid", POD_UID),
    ] {
        nested(container, 9, |label| {
            text(label, 1, key);
            text(label, 2, value);
        });
    }
    nested(container, 15, |linux| {
        nested(linux, 2, |security| {
            nested(security, 3, |namespaces| {
                namespaces.uint(tag::varint(1), NODE);
            });
        });
    });
}

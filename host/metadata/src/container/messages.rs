//! The messages of containerd and of the container runtime interface, from their `.proto` files, without unused fields.

/// `containerd.services.*` and `containerd.types`
pub mod containerd {
    use std::collections::BTreeMap;

    use prost::Message;

    #[derive(Clone, PartialEq, Message)]
    pub struct ListNamespacesResponse {
        #[prost(message, repeated, tag = "1")]
        pub namespaces: Vec<Namespace>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Namespace {
        #[prost(string, tag = "1")]
        pub name: String,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct GetContainerRequest {
        #[prost(string, tag = "1")]
        pub id: String,
    }

    /// The response to a `GetContainerRequest`, and each message of a list.
    #[derive(Clone, PartialEq, Message)]
    pub struct GetContainerResponse {
        #[prost(message, optional, tag = "1")]
        pub container: Option<Container>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Container {
        #[prost(string, tag = "1")]
        pub id: String,
        #[prost(btree_map = "string, string", tag = "2")]
        pub labels: BTreeMap<String, String>,
        #[prost(string, tag = "3")]
        pub image: String,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct SubscribeRequest {
        #[prost(string, repeated, tag = "1")]
        pub filters: Vec<String>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Envelope {
        #[prost(string, tag = "2")]
        pub namespace: String,
        #[prost(string, tag = "3")]
        pub topic: String,
        #[prost(message, optional, tag = "4")]
        pub event: Option<Any>,
    }

    /// `google.protobuf.Any`
    #[derive(Clone, PartialEq, Message)]
    pub struct Any {
        #[prost(bytes = "vec", tag = "2")]
        pub value: Vec<u8>,
    }

    /// The common first field of `ContainerCreate`, `ContainerUpdate` and `ContainerDelete`.
    #[derive(Clone, PartialEq, Message)]
    pub struct ContainerEvent {
        #[prost(string, tag = "1")]
        pub id: String,
    }
}

/// `runtime.v1`
pub mod cri {
    use std::collections::BTreeMap;

    use prost::{Enumeration, Message};

    #[derive(Clone, PartialEq, Message)]
    pub struct VersionResponse {
        #[prost(string, tag = "2")]
        pub runtime_name: String,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct ListContainersRequest {
        #[prost(message, optional, tag = "1")]
        pub filter: Option<ContainerFilter>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct ContainerFilter {
        #[prost(string, tag = "1")]
        pub id: String,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct ListContainersResponse {
        #[prost(message, repeated, tag = "1")]
        pub containers: Vec<Container>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Container {
        #[prost(string, tag = "1")]
        pub id: String,
        #[prost(message, optional, tag = "3")]
        pub metadata: Option<ContainerMetadata>,
        #[prost(message, optional, tag = "4")]
        pub image: Option<ImageSpec>,
        #[prost(string, tag = "5")]
        pub image_ref: String,
        #[prost(btree_map = "string, string", tag = "8")]
        pub labels: BTreeMap<String, String>,
        #[prost(string, tag = "10")]
        pub image_id: String,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct ContainerMetadata {
        #[prost(string, tag = "1")]
        pub name: String,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct ImageSpec {
        #[prost(string, tag = "1")]
        pub image: String,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct ContainerEventResponse {
        #[prost(string, tag = "1")]
        pub container_id: String,
        #[prost(enumeration = "ContainerEventType", tag = "2")]
        pub container_event_type: i32,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
    #[repr(i32)]
    pub enum ContainerEventType {
        Created = 0,
        Started = 1,
        Stopped = 2,
        Deleted = 3,
    }
}

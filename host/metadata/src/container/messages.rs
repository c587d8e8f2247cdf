//! The messages of containerd and of the container runtime interface, from their `.proto` files, without unused fields.

pub mod containerd {
    use std::collections::BTreeMap;

    use prost::Message;

    /// `containerd.services.namespaces.v1.ListNamespacesResponse`
    #[derive(Clone, PartialEq, Message)]
    pub struct ListNamespacesResponse {
        #[prost(message, repeated, tag = "1")]
        pub namespaces: Vec<Namespace>,
    }

    /// `containerd.services.namespaces.v1.Namespace`
    #[derive(Clone, PartialEq, Message)]
    pub struct Namespace {
        #[prost(string, tag = "1")]
        pub name: String,
    }

    /// `containerd.services.containers.v1.GetContainerRequest`
    #[derive(Clone, PartialEq, Message)]
    pub struct GetContainerRequest {
        #[prost(string, tag = "1")]
        pub id: String,
    }

    /// `containerd.services.containers.v1.GetContainerResponse`, and
    /// `containerd.services.containers.v1.ListContainerMessage`, the messages of a list.
    #[derive(Clone, PartialEq, Message)]
    pub struct GetContainerResponse {
        #[prost(message, optional, tag = "1")]
        pub container: Option<Container>,
    }

    /// `containerd.services.containers.v1.Container`
    #[derive(Clone, PartialEq, Message)]
    pub struct Container {
        #[prost(string, tag = "1")]
        pub id: String,
        #[prost(btree_map = "string, string", tag = "2")]
        pub labels: BTreeMap<String, String>,
        #[prost(string, tag = "3")]
        pub image: String,
    }

    /// `containerd.services.events.v1.SubscribeRequest`
    #[derive(Clone, PartialEq, Message)]
    pub struct SubscribeRequest {
        #[prost(string, repeated, tag = "1")]
        pub filters: Vec<String>,
    }

    /// `containerd.types.Envelope`
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

    /// `containerd.events.ContainerCreate`, `containerd.events.ContainerUpdate` and `containerd.events.ContainerDelete`:
    /// their common first field.
    #[derive(Clone, PartialEq, Message)]
    pub struct ContainerEvent {
        #[prost(string, tag = "1")]
        pub id: String,
    }
}

pub mod cri {
    use std::collections::BTreeMap;

    use prost::{Enumeration, Message};

    /// `runtime.v1.VersionResponse`
    #[derive(Clone, PartialEq, Message)]
    pub struct VersionResponse {
        #[prost(string, tag = "2")]
        pub runtime_name: String,
    }

    /// `runtime.v1.ListContainersRequest`
    #[derive(Clone, PartialEq, Message)]
    pub struct ListContainersRequest {
        #[prost(message, optional, tag = "1")]
        pub filter: Option<ContainerFilter>,
    }

    /// `runtime.v1.ContainerFilter`
    #[derive(Clone, PartialEq, Message)]
    pub struct ContainerFilter {
        #[prost(string, tag = "1")]
        pub id: String,
    }

    /// `runtime.v1.ListContainersResponse`
    #[derive(Clone, PartialEq, Message)]
    pub struct ListContainersResponse {
        #[prost(message, repeated, tag = "1")]
        pub containers: Vec<Container>,
    }

    /// `runtime.v1.Container`
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

    /// `runtime.v1.ContainerMetadata`
    #[derive(Clone, PartialEq, Message)]
    pub struct ContainerMetadata {
        #[prost(string, tag = "1")]
        pub name: String,
    }

    /// `runtime.v1.ImageSpec`
    #[derive(Clone, PartialEq, Message)]
    pub struct ImageSpec {
        #[prost(string, tag = "1")]
        pub image: String,
    }

    /// `runtime.v1.ContainerEventResponse`
    #[derive(Clone, PartialEq, Message)]
    pub struct ContainerEventResponse {
        #[prost(string, tag = "1")]
        pub container_id: String,
        #[prost(enumeration = "ContainerEventType", tag = "2")]
        pub container_event_type: i32,
    }

    /// `runtime.v1.ContainerEventType`
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
    #[repr(i32)]
    pub enum ContainerEventType {
        Created = 0,
        Started = 1,
        Stopped = 2,
        Deleted = 3,
    }
}

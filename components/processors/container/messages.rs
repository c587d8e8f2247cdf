//! The messages of containerd and of the container runtime interface, as far as they are needed.

use profcol_profile::proto::{Reader, WireError, Writer, tag};

use super::described::Described;

const FIRST_FIELD: u32 = tag::len(1);
const MAP_KEY: u32 = tag::len(1);
const MAP_VALUE: u32 = tag::len(2);

const LIST_NAMESPACES: u32 = tag::len(1);
const NAMESPACE_NAME: u32 = tag::len(1);
const CONTAINER_ID: u32 = tag::len(1);
const CONTAINER_LABELS: u32 = tag::len(2);
const CONTAINER_IMAGE: u32 = tag::len(3);
const ENVELOPE_NAMESPACE: u32 = tag::len(2);
const ENVELOPE_TOPIC: u32 = tag::len(3);
const ENVELOPE_EVENT: u32 = tag::len(4);
const ANY_VALUE: u32 = tag::len(2);
const EVENT_CONTAINER_ID: u32 = tag::len(1);

const LIST_CONTAINERS: u32 = tag::len(1);
const CRI_ID: u32 = tag::len(1);
const CRI_METADATA: u32 = tag::len(3);
const METADATA_NAME: u32 = tag::len(1);
const CRI_IMAGE: u32 = tag::len(4);
const IMAGE_SPEC_IMAGE: u32 = tag::len(1);
const CRI_IMAGE_REF: u32 = tag::len(5);
const CRI_LABELS: u32 = tag::len(8);
const CRI_IMAGE_ID: u32 = tag::len(10);

/// A message whose first field is this text.
pub(super) fn with_text(text: &str) -> Vec<u8> {
    let mut message = Writer::default();
    message.bytes(FIRST_FIELD, text.as_bytes());
    message.into_vec()
}

/// The first field of each of the messages that are the first field.
pub(super) fn names(message: &[u8]) -> Result<Vec<String>, WireError> {
    let mut names = Vec::new();
    each(message, LIST_NAMESPACES, |item| {
        names.push(text(field(item, NAMESPACE_NAME)?).to_owned());
        Ok(())
    })?;
    Ok(names)
}

/// The last bytes of a field.
pub(super) fn field(message: &[u8], wanted: u32) -> Result<&[u8], WireError> {
    let mut found: &[u8] = &[];
    let mut reader = Reader::new(message);
    while let Some(tag) = reader.tag()? {
        match tag {
            _ if tag == wanted => found = reader.bytes()?,
            unknown => reader.skip(unknown, 0)?,
        }
    }
    Ok(found)
}

/// `containerd.services.containers.v1.Container`.
pub(super) fn containerd_container<'a>(
    message: &'a [u8],
    namespace: &'a str,
) -> Result<Described<'a>, WireError> {
    let mut container = Described {
        namespace,
        runtime: "containerd",
        ..Described::default()
    };
    let mut reader = Reader::new(message);
    while let Some(tag) = reader.tag()? {
        match tag {
            CONTAINER_ID => container.id = text(reader.bytes()?),
            CONTAINER_LABELS => container.labels.push(pair(reader.bytes()?)?),
            CONTAINER_IMAGE => container.image = text(reader.bytes()?),
            unknown => reader.skip(unknown, 0)?,
        }
    }
    container.labels.sort_unstable();
    // nerdctl's; elsewhere the id is the name.
    let name = container.labels.iter().find(|it| it.0 == "nerdctl/name");
    let name = name.map(|(_, name)| *name);
    let pod = container
        .labels
        .iter()
        .find(|it| it.0 == "io.kubernetes.container.name");
    container.name = name.or(pod.map(|(_, name)| *name)).unwrap_or(container.id);
    Ok(container)
}

/// What happened to which container, of `containerd.types.Envelope`: topic, namespace, id.
pub(super) fn containerd_event(message: &[u8]) -> Result<(&str, &str, &str), WireError> {
    let (mut namespace, mut topic, mut event): (_, _, &[u8]) = ("", "", &[]);
    let mut reader = Reader::new(message);
    while let Some(tag) = reader.tag()? {
        match tag {
            ENVELOPE_NAMESPACE => namespace = text(reader.bytes()?),
            ENVELOPE_TOPIC => topic = text(reader.bytes()?),
            ENVELOPE_EVENT => event = field(reader.bytes()?, ANY_VALUE)?,
            unknown => reader.skip(unknown, 0)?,
        }
    }
    Ok((topic, namespace, text(field(event, EVENT_CONTAINER_ID)?)))
}

/// The containers of `runtime.v1.ListContainersResponse`.
pub(super) fn cri_containers(message: &[u8]) -> Result<Vec<Described<'_>>, WireError> {
    let mut containers = Vec::new();
    each(message, LIST_CONTAINERS, |container| {
        containers.push(cri_container(container)?);
        Ok(())
    })?;
    Ok(containers)
}

fn cri_container(message: &[u8]) -> Result<Described<'_>, WireError> {
    let mut container = Described::default();
    let mut reader = Reader::new(message);
    while let Some(tag) = reader.tag()? {
        match tag {
            CRI_ID => container.id = text(reader.bytes()?),
            CRI_METADATA => container.name = text(field(reader.bytes()?, METADATA_NAME)?),
            CRI_IMAGE => container.image = text(field(reader.bytes()?, IMAGE_SPEC_IMAGE)?),
            CRI_IMAGE_REF => container.image_id = text(reader.bytes()?),
            CRI_LABELS => container.labels.push(pair(reader.bytes()?)?),
            // Newer than the reference, which may be a digest.
            CRI_IMAGE_ID => container.image_id = text(reader.bytes()?),
            unknown => reader.skip(unknown, 0)?,
        }
    }
    container.labels.sort_unstable();
    Ok(container)
}

/// The id, and whether it was deleted, of `runtime.v1.ContainerEventResponse`.
pub(super) fn cri_event(message: &[u8]) -> Result<(&str, bool), WireError> {
    const KIND: u32 = tag::varint(2);
    const DELETED: u64 = 3;
    let (mut id, mut kind) = ("", 0);
    let mut reader = Reader::new(message);
    while let Some(tag) = reader.tag()? {
        match tag {
            EVENT_CONTAINER_ID => id = text(reader.bytes()?),
            KIND => kind = reader.varint()?,
            unknown => reader.skip(unknown, 0)?,
        }
    }
    Ok((id, kind == DELETED))
}

/// A key and its value in a map.
fn pair(message: &[u8]) -> Result<(&str, &str), WireError> {
    Ok((
        text(field(message, MAP_KEY)?),
        text(field(message, MAP_VALUE)?),
    ))
}

fn each<'a>(
    message: &'a [u8],
    wanted: u32,
    mut take: impl FnMut(&'a [u8]) -> Result<(), WireError>,
) -> Result<(), WireError> {
    let mut reader = Reader::new(message);
    while let Some(tag) = reader.tag()? {
        match tag {
            _ if tag == wanted => take(reader.bytes()?)?,
            unknown => reader.skip(unknown, 0)?,
        }
    }
    Ok(())
}

/// What is no text is none.
fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

//! Finds the bodies that several queues share by the references in their records.

use std::io;

use crate::bodies::{Bodies, Body};
use crate::disk::{Disk, DiskFile};
use crate::format::{
    BadSegment, RECORD_HEADER, RecordHeader, Reference, SEGMENT_HEADER, SegmentHeader,
};
use crate::segment::{read_header, records_name, settled_name};
use crate::walk::read_payload;

/// The files below a directory that another process may be using.
pub struct BodiesOn<D>(pub D);

impl<D: Disk> BodiesOn<D> {
    fn look(&self, reference: &Reference, len: u32, reads: bool) -> io::Result<Body> {
        let file = match self.0.open(&records_name(reference.segment)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Body::Missing),
            opened => opened?,
        };
        let header = match read_header(&*file, reference.segment)? {
            // The settled file has the same header.
            Err(BadSegment::Damaged) => {
                let settled = self.0.open(&settled_name(reference.segment)).ok();
                settled.map(|file| read_header(&*file, reference.segment))
            }
            header => Some(Ok(header)),
        };
        let Some(Ok(Ok(SegmentHeader { salt, .. }))) = header else {
            return Ok(Body::Damaged);
        };
        let end = file.size()?;
        match lies_in(reference, len, salt, end) {
            false => Ok(Body::Missing),
            true if reads => read_body(&*file, reference, len),
            true => Ok(Body::Intact(Vec::new())),
        }
    }
}

impl<D: Disk> Bodies for BodiesOn<D> {
    fn find(&self, reference: &Reference, len: u32) -> io::Result<Body> {
        self.look(reference, len, false)
    }

    fn read(&self, reference: &Reference, len: u32) -> io::Result<Body> {
        self.look(reference, len, true)
    }
}

/// Whether a segment with this salt and size has the record.
pub fn lies_in(reference: &Reference, len: u32, salt: u64, end: u64) -> bool {
    let record = RECORD_HEADER as u64 + u64::from(len);
    reference.salt == salt
        && reference.at >= SEGMENT_HEADER as u64
        && reference.at.checked_add(record).is_some_and(|it| it <= end)
}

/// Reads a body that [lies in](lies_in) the file.
pub fn read_body(file: &dyn DiskFile, reference: &Reference, len: u32) -> io::Result<Body> {
    let mut bytes = [0; RECORD_HEADER];
    file.read_at(reference.at, &mut bytes)?;
    let salt = reference.salt;
    let header = RecordHeader::decode(&bytes, salt).filter(|header| {
        let is_body = header.head_len == 0 && !header.has_reference;
        is_body && (header.body_len, header.payload_check) == (len, reference.check)
    });
    let Some(header) = header else {
        return Ok(Body::Damaged);
    };
    let payload = read_payload(file, salt, reference.at, &header)?;
    Ok(payload.map_or(Body::Damaged, |(_, body)| Body::Intact(body)))
}

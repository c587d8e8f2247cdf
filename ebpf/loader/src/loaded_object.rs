//! The maps and programs of a loaded BPF object, by their names.

use aya::Ebpf;
use aya::maps::{Map, MapData, MapError};
use aya::programs::ProgramError;

use crate::load_error::LoadError;

/// Takes a map.
pub fn map<T: TryFrom<Map, Error = MapError>>(
    object: &mut Ebpf,
    name: &'static str,
) -> Result<T, LoadError> {
    let map = object.take_map(name).ok_or(LoadError::Missing(name))?;
    T::try_from(map).map_err(|error| LoadError::Map { name, error })
}

/// Takes a hash map that is read in batches.
pub fn hash_map(object: &mut Ebpf, name: &'static str) -> Result<MapData, LoadError> {
    match object.take_map(name) {
        Some(Map::HashMap(map)) => Ok(map),
        _ => Err(LoadError::Missing(name)),
    }
}

pub fn program<'a, T>(object: &'a mut Ebpf, name: &'static str) -> Result<&'a mut T, LoadError>
where
    &'a mut T: TryFrom<&'a mut aya::programs::Program, Error = ProgramError>,
{
    object
        .program_mut(name)
        .ok_or(LoadError::Missing(name))?
        .try_into()
        .map_err(|error: ProgramError| LoadError::Program {
            name,
            error: error.into(),
        })
}

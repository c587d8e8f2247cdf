//! An assembly: its own name and those of its methods.

use profcol_elf::{Extent, Source};

use crate::bytes::Bytes;
use crate::error::damaged;
use crate::image::Image;
use crate::metadata::{Metadata, coded};
use crate::tables::Table;
use crate::{DotNetError, ImageLayout, Machine};

/// Nested types have few levels.
const MAX_NESTING: usize = 16;
/// Generic parameters to name; the framework has methods with 23.
const MAX_GENERIC_PARAMETERS: usize = 64;
/// A full name; those of methods that implement generic interfaces explicitly have some hundred characters.
const MAX_FULL_NAME: usize = 4 << 10;
/// Only the beginning of a type's signature is needed.
const MAX_TYPE_SIGNATURE: u64 = 16 << 10;

/// A type outside of all types: it has the global functions.
const MODULE_TYPE: u32 = 1;

/// A method in the metadata of an assembly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MethodToken {
    /// Row of a method that this assembly defines.
    MethodDef(u32),
    /// Row of a method that this assembly uses; another one may define it.
    MemberRef(u32),
}

/// The headers of an assembly and where its metadata is. The metadata itself stays in the source.
#[derive(Debug)]
pub struct Assembly {
    pub(crate) image: Image,
    pub(crate) metadata: Metadata,
}

impl Assembly {
    pub fn read(source: &(impl Source + ?Sized), layout: ImageLayout) -> Result<Self, DotNetError> {
        let image = Image::read(source, layout)?;
        let range = image.extent("the metadata", image.metadata)?;
        let metadata = Metadata::read(source, range)?;
        Ok(Self { image, metadata })
    }

    pub fn machine(&self) -> Machine {
        self.image.machine
    }

    /// The file offset of a relative virtual address.
    pub fn offset_of_rva(&self, rva: u32) -> Option<u64> {
        self.image.offset_of_rva(rva)
    }

    /// The relative virtual address of a file offset.
    pub fn rva_of_offset(&self, offset: u64) -> Option<u32> {
        self.image.rva_of_offset(offset)
    }

    /// Number of methods; their rows count from 1.
    pub fn methods(&self) -> u32 {
        self.metadata.rows(Table::METHOD_DEF)
    }

    /// The simple name, without version and culture. Of a module that is no assembly, the name of its file.
    pub fn name(&self, source: &(impl Source + ?Sized)) -> Result<String, DotNetError> {
        let (table, column) = match self.metadata.rows(Table::ASSEMBLY) {
            0 => (Table::MODULE, 1),
            _ => (Table::ASSEMBLY, 7),
        };
        let row = self.metadata.row(source, table, 1)?;
        self.metadata.string(source, row.get(column))
    }

    /// The full name of a method as a stack trace prints it, without its parameters:
    /// ``Namespace.Type`1.Nested.Method[T]``. For a row of `MethodDef`.
    pub fn method(&self, source: &(impl Source + ?Sized), row: u32) -> Result<String, DotNetError> {
        let metadata = &self.metadata;
        let method = metadata.row(source, Table::METHOD_DEF, row)?;
        let mut name = String::new();
        match metadata.last_at_most(source, Table::TYPE_DEF, 5, row)? {
            None | Some(MODULE_TYPE) => {}
            Some(owner) => {
                self.push_type(source, owner, &mut name)?;
                name.push('.');
            }
        }
        name.push_str(&metadata.string(source, method.get(3))?);
        self.push_generic_parameters(source, row, &mut name)?;
        Ok(name)
    }

    /// The full name of a method by its token. That of a method of another assembly comes without its type if this is
    /// not a class or structure, and without its generic parameters: their names are in that assembly.
    pub fn method_by_token(
        &self,
        source: &(impl Source + ?Sized),
        token: MethodToken,
    ) -> Result<String, DotNetError> {
        let row = match token {
            MethodToken::MethodDef(row) => return self.method(source, row),
            MethodToken::MemberRef(row) => row,
        };
        let member = self.metadata.row(source, Table::MEMBER_REF, row)?;
        let mut name = String::new();
        if let Some((table, row)) = member.coded(0) {
            if table == Table::METHOD_DEF {
                return self.method(source, row);
            }
            let parent = match table {
                Table::TYPE_SPEC => self.specified_type(source, row)?,
                _ => Some((table, row)),
            };
            if let Some((table, row)) = parent {
                match table {
                    Table::TYPE_DEF => self.push_type(source, row, &mut name)?,
                    Table::TYPE_REF => self.push_type_ref(source, row, &mut name)?,
                    _ => {}
                }
            }
        }
        if !name.is_empty() {
            name.push('.');
        }
        name.push_str(&self.metadata.string(source, member.get(1))?);
        Ok(name)
    }

    /// Appends the name of a type that this assembly defines, after those of the types around it.
    fn push_type(
        &self,
        source: &(impl Source + ?Sized),
        row: u32,
        name: &mut String,
    ) -> Result<(), DotNetError> {
        let metadata = &self.metadata;
        let mut types = vec![row];
        let mut inner = row;
        while let Some(at) = metadata.last_at_most(source, Table::NESTED_CLASS, 0, inner)? {
            let nested = metadata.row(source, Table::NESTED_CLASS, at)?;
            if nested.get(0) != inner {
                break;
            }
            if types.len() == MAX_NESTING {
                return Err(damaged("a type nested too deeply"));
            }
            inner = nested.get(1);
            types.push(inner);
        }
        for (number, &row) in types.iter().rev().enumerate() {
            let row = metadata.row(source, Table::TYPE_DEF, row)?;
            self.push_type_name(source, row.get(1), row.get(2), number > 0, name)?;
        }
        Ok(())
    }

    /// The same for a type that it uses.
    fn push_type_ref(
        &self,
        source: &(impl Source + ?Sized),
        row: u32,
        name: &mut String,
    ) -> Result<(), DotNetError> {
        let mut types = Vec::new();
        let mut next = Some(row);
        while let Some(row) = next {
            if types.len() == MAX_NESTING {
                return Err(damaged("a type nested too deeply"));
            }
            let row = self.metadata.row(source, Table::TYPE_REF, row)?;
            next = match row.coded(0) {
                Some((Table::TYPE_REF, outer)) if outer != 0 => Some(outer),
                _ => None,
            };
            types.push((row.get(1), row.get(2)));
        }
        for (number, &(simple, namespace)) in types.iter().rev().enumerate() {
            self.push_type_name(source, simple, namespace, number > 0, name)?;
        }
        Ok(())
    }

    fn push_type_name(
        &self,
        source: &(impl Source + ?Sized),
        simple: u32,
        namespace: u32,
        is_nested: bool,
        name: &mut String,
    ) -> Result<(), DotNetError> {
        if is_nested {
            name.push('.');
        }
        if namespace != 0 {
            let namespace = self.metadata.string(source, namespace)?;
            if !namespace.is_empty() {
                name.push_str(&namespace);
                name.push('.');
            }
        }
        name.push_str(&self.metadata.string(source, simple)?);
        check_length(name.len())
    }

    /// The generic type that a signature instantiates; `None` for arrays and the like.
    fn specified_type(
        &self,
        source: &(impl Source + ?Sized),
        row: u32,
    ) -> Result<Option<(Table, u32)>, DotNetError> {
        /// In front of an instance of a generic type, a class, a structure.
        const GENERICINST: u8 = 0x15;
        const CLASS: u8 = 0x12;
        const VALUETYPE: u8 = 0x11;

        let row = self.metadata.row(source, Table::TYPE_SPEC, row)?;
        let blob = self.metadata.blob(source, row.get(0), MAX_TYPE_SIGNATURE)?;
        let mut bytes = Bytes(&blob);
        if bytes.u8() != Some(GENERICINST) || !matches!(bytes.u8(), Some(CLASS | VALUETYPE)) {
            return Ok(None);
        }
        let tables = [Table::TYPE_DEF.0, Table::TYPE_REF.0];
        let index = bytes.compressed();
        Ok(index.and_then(|index| coded(index, 2, &tables)))
    }

    /// `[TKey,TValue]`
    fn push_generic_parameters(
        &self,
        source: &(impl Source + ?Sized),
        method: u32,
        name: &mut String,
    ) -> Result<(), DotNetError> {
        const OWNER: usize = 2;
        let (table, metadata) = (Table::GENERIC_PARAM, &self.metadata);
        // The lowest bit: a method, not a type.
        let owner = method << 1 | 1;
        let last = metadata.last_at_most(source, table, OWNER, owner)?;
        let Some(last) = last else {
            return Ok(());
        };
        let (mut names, mut length) = (Vec::new(), 0);
        for row in (1..=last).rev().take(MAX_GENERIC_PARAMETERS) {
            let row = metadata.row(source, table, row)?;
            if row.get(OWNER) != owner {
                break;
            }
            let name = metadata.string(source, row.get(3))?;
            length += name.len();
            check_length(length)?;
            names.push(name);
        }
        if !names.is_empty() {
            names.reverse();
            name.push('[');
            name.push_str(&names.join(","));
            name.push(']');
        }
        Ok(())
    }

    pub(crate) fn extent(
        &self,
        what: &'static str,
        range: crate::image::Directory,
    ) -> Result<Extent, DotNetError> {
        self.image.extent(what, range)
    }
}

fn check_length(length: usize) -> Result<(), DotNetError> {
    match length {
        0..=MAX_FULL_NAME => Ok(()),
        _ => Err(damaged("a name of more than 4 KiB")),
    }
}

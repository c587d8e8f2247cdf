//! Every change of a byte, and every end of a file, is an error or other content; never a panic.

use super::images::{X86_64, bundle, debug_info, sections};
use super::lines::{ID, image_with_pdb, pdb};
use crate::{Assembly, Bundle, DotNetError, ImageLayout, PortablePdb};

fn image() -> Vec<u8> {
    let mut image = image_with_pdb(pdb().len() as u32);
    let mut sections = sections(X86_64);
    sections.push((105, debug_info()));
    image.set_ready_to_run(9, 0, &sections);
    image.file()
}

fn read_image(file: &[u8]) -> Result<(), DotNetError> {
    let assembly = Assembly::read(file, ImageLayout::File)?;
    let name = assembly.name(file);
    let names: Vec<_> = (1..=assembly.methods().min(10))
        .map(|row| assembly.method(file, row))
        .collect();
    let directory = assembly.debug_directory(file)?;
    directory.embedded_pdb(file)?;
    if let Some(code) = assembly.ready_to_run(file)? {
        for method in code.methods() {
            assert!(method.start < method.end);
            if let Some(token) = method.token {
                let _ = assembly.method_by_token(file, token);
            }
            code.il_map(file, &method)?;
        }
    }
    name?;
    names.into_iter().try_for_each(|name| name.map(drop))
}

fn read_pdb(file: &[u8]) -> Result<(), DotNetError> {
    let pdb = PortablePdb::read(file, &ID)?;
    for method in 0..5 {
        pdb.first_line(file, method)?;
        pdb.line(file, method, 12)?;
    }
    Ok(())
}

fn read_bundle(file: &[u8]) -> Result<(), DotNetError> {
    if let Some(bundle) = Bundle::read(file)? {
        for file in bundle.files() {
            assert!(file.size == 0 || bundle.file_at(file.offset).is_some());
        }
    }
    Ok(())
}

fn damage(mut file: Vec<u8>, read: fn(&[u8]) -> Result<(), DotNetError>) {
    read(&file).unwrap();
    for length in 0..file.len() {
        let _ = read(&file[..length]);
    }
    for at in 0..file.len() {
        let before = file[at];
        for byte in [0, 1, 0x7f, 0x80, 0xff, before ^ 0x10] {
            file[at] = byte;
            let _ = read(&file);
        }
        file[at] = before;
    }
}

#[test]
fn damaged_images_do_no_harm() {
    damage(image(), read_image);
}

#[test]
fn damaged_pdbs_do_no_harm() {
    damage(pdb(), read_pdb);
}

#[test]
fn damaged_bundles_do_no_harm() {
    damage(bundle(0, 6), read_bundle);
}

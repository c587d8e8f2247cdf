//! Where the running kernel keeps what the programs read: byte offsets, found in its BTF by the loader.

macro_rules! layout {
    ($($(#[doc = $doc:literal])* $field:ident: $of:literal . $member:literal $(| $other:literal)*;)*) => {
        /// Offsets of members of the kernel's structures.
        #[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
        #[derive(Clone, Copy, Debug, Default)]
        #[repr(C)]
        pub struct Layout {
            $($(#[doc = $doc])* pub $field: u64,)*
        }

        impl Layout {
            /// Each member's structure and path, and its paths in other kernels, in the order of
            /// the fields.
            pub const MEMBERS: &[(&str, &[&str])] = &[$(($of, &[$member $(, $other)*]),)*];

            /// The layout with these offsets, in the order of [`Layout::MEMBERS`].
            pub fn from_offsets(mut next: impl FnMut() -> u64) -> Self {
                Self { $($field: next(),)* }
            }
        }
    };
}

layout! {
    task_mm: "task_struct"."mm";
    task_flags: "task_struct"."flags";
    task_leader: "task_struct"."group_leader";
    task_parent: "task_struct"."real_parent";
    task_tgid: "task_struct"."tgid";
    task_started: "task_struct"."start_boottime" | "real_start_time";
    task_exec: "task_struct"."self_exec_id";
    task_comm: "task_struct"."comm";
    task_cred: "task_struct"."cred";
    cred_uid: "cred"."uid";
    mm_tree: "mm_struct"."mm_mt.ma_root";
    mm_exe: "mm_struct"."exe_file";
    mm_vdso: "mm_struct"."context.vdso";
    vma_start: "vm_area_struct"."vm_start";
    vma_end: "vm_area_struct"."vm_end";
    vma_mm: "vm_area_struct"."vm_mm";
    vma_flags: "vm_area_struct"."vm_flags" | "__vm_flags";
    vma_page: "vm_area_struct"."vm_pgoff";
    vma_file: "vm_area_struct"."vm_file";
    file_inode: "file"."f_inode";
    inode_number: "inode"."i_ino";
    inode_super: "inode"."i_sb";
    inode_generation: "inode"."i_generation";
    inode_seconds: "inode"."i_mtime_sec" | "i_mtime.tv_sec" | "__i_mtime.tv_sec";
    inode_nanoseconds: "inode"."i_mtime_nsec" | "i_mtime.tv_nsec" | "__i_mtime.tv_nsec";
    super_device: "super_block"."s_dev";
}

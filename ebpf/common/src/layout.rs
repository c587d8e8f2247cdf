//! Where the running kernel keeps what the programs read: byte offsets, found in its BTF by the loader.
//!
//! Of a bit field, `field:bit`, the offset is in bits.

/// Stands last among a member's paths where kernels may lack it; its offset is then [`ABSENT`].
pub const MAY_LACK: &str = "?";

/// Added to any address of the kernel this gives one that nothing can be read from.
pub const ABSENT: u64 = 1 << 63;

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
    /// The lowest address of its stack in the kernel.
    task_stack: "task_struct"."stack";
    task_comm: "task_struct"."comm";
    task_cred: "task_struct"."cred";
    cred_uid: "cred"."uid";
    /// The maple tree of mappings, since Linux 6.1.
    mm_tree: "mm_struct"."mm_mt.ma_root" | "?";
    /// The red-black tree of mappings, before.
    mm_areas: "mm_struct"."mm_rb.rb_node" | "?";
    mm_exe: "mm_struct"."exe_file";
    mm_vdso: "mm_struct"."context.vdso";
    /// Counts the changes of the mappings.
    mm_changes: "mm_struct"."mm_lock_seq" | "?";
    vma_start: "vm_area_struct"."vm_start" | "?";
    vma_end: "vm_area_struct"."vm_end" | "?";
    vma_mm: "vm_area_struct"."vm_mm" | "?";
    vma_flags: "vm_area_struct"."vm_flags" | "__vm_flags" | "?";
    vma_page: "vm_area_struct"."vm_pgoff" | "?";
    vma_file: "vm_area_struct"."vm_file" | "?";
    /// Its node in the red-black tree.
    vma_node: "vm_area_struct"."vm_rb" | "?";
    file_inode: "file"."f_inode" | "?";
    inode_number: "inode"."i_ino" | "?";
    inode_super: "inode"."i_sb" | "?";
    inode_generation: "inode"."i_generation" | "?";
    inode_seconds: "inode"."i_mtime_sec" | "i_mtime.tv_sec" | "__i_mtime.tv_sec" | "?";
    inode_nanoseconds: "inode"."i_mtime_nsec" | "i_mtime.tv_nsec" | "__i_mtime.tv_nsec" | "?";
    super_device: "super_block"."s_dev" | "?";
    super_magic: "super_block"."s_magic" | "?";
    file_dentry: "file"."f_path.dentry";
    file_mount: "file"."f_path.mnt";
    dentry_parent: "dentry"."d_parent";
    dentry_name: "dentry"."d_name.name";
    mount_vfs: "mount"."mnt";
    mount_root: "mount"."mnt.mnt_root";
    mount_parent: "mount"."mnt_parent";
    mount_point: "mount"."mnt_mountpoint";
    task_namespaces: "task_struct"."nsproxy";
    namespaces_mount: "nsproxy"."mnt_ns";
    mount_namespace_number: "mnt_namespace"."ns.inum";
    task_pid: "task_struct"."thread_pid";
    pid_level: "pid"."level";
    /// A `upid` for each level of namespaces, the host's first.
    pid_numbers: "pid"."numbers";
    upid_number: "upid"."nr";
    upid_namespace: "upid"."ns";
    pid_namespace_number: "pid_namespace"."ns.inum";
    task_cgroups: "task_struct"."cgroups" | "?";
    cgroups_unified: "css_set"."dfl_cgrp" | "?";
    /// A pointer for each controller, up to the next member.
    cgroups_controllers: "css_set"."subsys" | "?";
    cgroups_behind_controllers: "css_set"."refcount" | "?";
    controller_cgroup: "cgroup_subsys_state"."cgroup" | "?";
    cgroup_level: "cgroup"."level" | "?";
    cgroup_node: "cgroup"."kn" | "?";
    node_parent: "kernfs_node"."__parent" | "parent" | "?";
    node_name: "kernfs_node"."name" | "?";
    task_in_exec: "task_struct"."in_execve:bit" | "?";
    mm_start_code: "mm_struct"."start_code";
    mm_start_stack: "mm_struct"."start_stack";
    mm_arguments: "mm_struct"."arg_start";
    mm_arguments_end: "mm_struct"."arg_end";
}

impl Layout {
    /// What has to be known to find mappings in the kernel's own tree, and is not.
    pub fn tree_lacks(&self) -> Option<&'static str> {
        let members = [
            (self.vma_start, "vm_area_struct.vm_start"),
            (self.vma_end, "vm_area_struct.vm_end"),
            (self.vma_mm, "vm_area_struct.vm_mm"),
            (self.vma_flags, "vm_area_struct.vm_flags"),
            (self.vma_page, "vm_area_struct.vm_pgoff"),
            (self.vma_file, "vm_area_struct.vm_file"),
            (self.file_inode, "file.f_inode"),
            (self.inode_number, "inode.i_ino"),
            (self.inode_super, "inode.i_sb"),
            (self.inode_generation, "inode.i_generation"),
            (self.inode_seconds, "inode.i_mtime"),
            (self.inode_nanoseconds, "inode.i_mtime"),
            (self.super_device, "super_block.s_dev"),
        ];
        if !self.has_maple_tree() && (self.mm_areas == ABSENT || self.vma_node == ABSENT) {
            return Some("mm_struct.mm_mt");
        }
        let mut members = members.into_iter();
        members
            .find(|&(offset, _)| offset == ABSENT)
            .map(|(_, name)| name)
    }

    /// The same, with nothing that tells of changed mappings.
    pub fn without_changes(self) -> Self {
        Self {
            mm_changes: ABSENT,
            ..self
        }
    }

    pub fn has_maple_tree(&self) -> bool {
        self.mm_tree != ABSENT
    }
}

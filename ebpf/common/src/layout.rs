//! Offsets of members of kernel structures, in bytes, which the loader finds in the kernel's BTF.
//!
//! The offset of a bit field, `field:bit`, is in bits.

/// Last path of members that kernels may lack; their offset is then [`ABSENT`].
pub const OPTIONAL: &str = "?";

/// Added to any kernel address it gives an unreadable one.
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
    task_start_time: "task_struct"."start_boottime" | "real_start_time";
    task_exec: "task_struct"."self_exec_id";
    /// The lowest address of its kernel stack.
    task_stack: "task_struct"."stack";
    task_comm: "task_struct"."comm";
    task_cred: "task_struct"."cred";
    cred_uid: "cred"."uid";
    /// Since Linux 6.1.
    mm_maple_root: "mm_struct"."mm_mt.ma_root" | "?";
    /// Before Linux 6.1.
    mm_rb_root: "mm_struct"."mm_rb.rb_node" | "?";
    mm_exe: "mm_struct"."exe_file";
    mm_vdso: "mm_struct"."context.vdso";
    /// Incremented with each change of the mappings.
    mm_seq: "mm_struct"."mm_lock_seq" | "?";
    vma_start: "vm_area_struct"."vm_start" | "?";
    vma_end: "vm_area_struct"."vm_end" | "?";
    vma_mm: "vm_area_struct"."vm_mm" | "?";
    vma_flags: "vm_area_struct"."vm_flags" | "__vm_flags" | "?";
    vma_pgoff: "vm_area_struct"."vm_pgoff" | "?";
    vma_file: "vm_area_struct"."vm_file" | "?";
    /// The embedded node of the red-black tree.
    vma_rb: "vm_area_struct"."vm_rb" | "?";
    file_inode: "file"."f_inode" | "?";
    inode_number: "inode"."i_ino" | "?";
    inode_super: "inode"."i_sb" | "?";
    inode_generation: "inode"."i_generation" | "?";
    inode_mtime_sec: "inode"."i_mtime_sec" | "i_mtime.tv_sec" | "__i_mtime.tv_sec" | "?";
    inode_mtime_nsec: "inode"."i_mtime_nsec" | "i_mtime.tv_nsec" | "__i_mtime.tv_nsec" | "?";
    super_dev: "super_block"."s_dev" | "?";
    super_magic: "super_block"."s_magic" | "?";
    file_dentry: "file"."f_path.dentry";
    file_mount: "file"."f_path.mnt";
    dentry_parent: "dentry"."d_parent";
    dentry_name: "dentry"."d_name.name";
    mount_vfs: "mount"."mnt";
    mount_root: "mount"."mnt.mnt_root";
    mount_parent: "mount"."mnt_parent";
    mount_mountpoint: "mount"."mnt_mountpoint";
    task_nsproxy: "task_struct"."nsproxy";
    nsproxy_mnt_ns: "nsproxy"."mnt_ns";
    mount_namespace_number: "mnt_namespace"."ns.inum";
    /// The thread pointer of user space.
    task_thread_pointer: "task_struct"."thread.fsbase" | "thread.uw.tp_value" | "?";
    task_pid: "task_struct"."thread_pid";
    pid_level: "pid"."level";
    /// A `upid` per PID namespace level, the host's first.
    pid_numbers: "pid"."numbers";
    upid_nr: "upid"."nr";
    upid_namespace: "upid"."ns";
    pid_namespace_number: "pid_namespace"."ns.inum";
    task_cgroups: "task_struct"."cgroups" | "?";
    cgroups_unified: "css_set"."dfl_cgrp" | "?";
    /// One pointer per controller, up to the next member.
    cgroups_subsys: "css_set"."subsys" | "?";
    cgroups_subsys_end: "css_set"."refcount" | "?";
    subsys_cgroup: "cgroup_subsys_state"."cgroup" | "?";
    cgroup_level: "cgroup"."level" | "?";
    cgroup_kn: "cgroup"."kn" | "?";
    kernfs_parent: "kernfs_node"."__parent" | "parent" | "?";
    kernfs_name: "kernfs_node"."name" | "?";
    task_in_exec: "task_struct"."in_execve:bit" | "?";
    mm_start_code: "mm_struct"."start_code";
    mm_start_stack: "mm_struct"."start_stack";
    mm_arg_start: "mm_struct"."arg_start";
    mm_arg_end: "mm_struct"."arg_end";
}

impl Layout {
    /// The first member that VMA lookup needs and this kernel lacks.
    pub fn missing_for_tree(&self) -> Option<&'static str> {
        let members = [
            (self.vma_start, "vm_area_struct.vm_start"),
            (self.vma_end, "vm_area_struct.vm_end"),
            (self.vma_mm, "vm_area_struct.vm_mm"),
            (self.vma_flags, "vm_area_struct.vm_flags"),
            (self.vma_pgoff, "vm_area_struct.vm_pgoff"),
            (self.vma_file, "vm_area_struct.vm_file"),
            (self.file_inode, "file.f_inode"),
            (self.inode_number, "inode.i_ino"),
            (self.inode_super, "inode.i_sb"),
            (self.inode_generation, "inode.i_generation"),
            (self.inode_mtime_sec, "inode.i_mtime"),
            (self.inode_mtime_nsec, "inode.i_mtime"),
            (self.super_dev, "super_block.s_dev"),
        ];
        if !self.has_maple_tree() && (self.mm_rb_root == ABSENT || self.vma_rb == ABSENT) {
            return Some("mm_struct.mm_mt");
        }
        let mut members = members.into_iter();
        members
            .find(|&(offset, _)| offset == ABSENT)
            .map(|(_, name)| name)
    }

    /// The layout without the counter of mapping changes.
    pub fn without_mm_seq(self) -> Self {
        Self {
            mm_seq: ABSENT,
            ..self
        }
    }

    pub fn has_maple_tree(&self) -> bool {
        self.mm_maple_root != ABSENT
    }
}

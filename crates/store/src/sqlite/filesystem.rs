//! Detects network file systems, whose locks are unreliable.

use std::path::Path;

/// Returns the type of the network file system that contains `path`, if it is one.
pub(crate) fn network_filesystem(path: &Path) -> Option<&'static str> {
    let kind = rustix::fs::statfs(path).ok()?.f_type;
    // The kernel's magic numbers have 32 bits, regardless of the width of the field.
    network_filesystem_name(kind as u32)
}

fn network_filesystem_name(magic: u32) -> Option<&'static str> {
    Some(match magic {
        0x6969 => "NFS",
        0x0bd0_0bd0 => "Lustre",
        0x4750_4653 => "GPFS",
        0xff53_4d42 | 0xfe53_4d42 | 0x517b => "SMB",
        0x1983_0326 => "BeeGFS",
        0x00c3_6400 => "Ceph",
        0x5346_414f | 0x6b41_4653 => "AFS",
        0x0102_1997 => "9P",
        0x2003_0528 => "OrangeFS",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_filesystems_are_known_by_magic_number() {
        for (magic, name) in [
            (0x6969, Some("NFS")),
            (0x0bd0_0bd0, Some("Lustre")),
            (0x4750_4653, Some("GPFS")),
            (0xff53_4d42, Some("SMB")),
            (0x1983_0326, Some("BeeGFS")),
            (0x00c3_6400, Some("Ceph")),
            (0x5346_414f, Some("AFS")),
            (0xef53, None),      // ext4
            (0x5846_5342, None), // xfs
            (0x0102_1994, None), // tmpfs
        ] {
            assert_eq!(network_filesystem_name(magic), name, "{magic:#x}");
        }
        assert_eq!(network_filesystem(Path::new("/proc")), None);
    }
}

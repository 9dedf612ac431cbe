//! The answers of each operation.

use super::{check, check_with};
use crate::Bugs;

#[test]
fn names_come_and_go() {
    check(
        "mkdir /d 755
         mkfile /d/f 644
         mkfile /d/f 644 -> EEXIST
         mkdir /d/f 755 -> EEXIST
         mkfile /none/f 644 -> ENOENT
         mkfile /d/f/x 644 -> ENOTDIR
         stat /d -> 755 2 0:0 1 never
         stat /d/f -> 644 1 0:0 0 never
         ls /d -> f
         unlink /d/none -> ENOENT
         unlink /d -> EISDIR
         rmdir /d/f -> ENOTDIR
         rmdir /d -> ENOTEMPTY
         unlink /d/f
         rmdir /d
         stat / -> 755 2 0:0 0 never
         inodes -> 1",
    );
}

#[test]
fn names_have_bounds() {
    let long = "n".repeat(255);
    let target = "t".repeat(4_095);
    check(&format!(
        "mkfile /{long} 644
         mkfile /{long}n 644 -> ENAMETOOLONG
         stat /{long}n -> ENAMETOOLONG
         mkfile /. 644 -> EINVAL
         symlink {target} /s
         readlink /s -> {target}
         symlink {target}t /t -> ENAMETOOLONG
         readlink /{long} -> EINVAL"
    ));
}

#[test]
fn kinds_of_files() {
    check(
        "mkfifo /fifo 644
         mkblk /disk 600
         su 7
         mkblk /disk2 600 -> EACCES
         su 0
         mkdir /tmp 777
         chmod /tmp 1777
         su 7
         mkblk /tmp/disk 600 -> EPERM
         open /fifo 1 h -> EACCES
         su 0
         symlink fifo /link
         open /link 0 h -> ELOOP
         stat /link -> 777 1 0:0 4 never",
    );
}

#[test]
fn hard_links() {
    check(
        "mkfile /a 644
         mkdir /d 755
         link /a /d/b
         link /a /d/b -> EEXIST
         link /d /e -> EPERM
         link /none /x -> ENOENT
         stat /a -> 644 2 0:0 0 never
         paths /a -> a d/b
         paths / ->
         unlink /a
         stat /d/b -> 644 1 0:0 0 never
         paths /d/b -> d/b",
    );
}

#[test]
fn renames() {
    check(
        "mkdir /a 755
         mkdir /b 755
         mkfile /a/f 644
         rename /a/none /b/x -> ENOENT
         rename /a/f /b/f
         ls /a ->
         ls /b -> f
         mkfile /a/g 644
         rename /a/g /b/f
         ls /b -> f
         inodes -> 4
         rename /b/f /a -> EISDIR
         rename /a /b/f -> ENOTDIR
         rename /a /b -> ENOTEMPTY
         rename /a /a/c -> EINVAL
         mkdir /a/sub 755
         rename /a /a/sub/c -> EINVAL
         rename /a/sub /b/sub
         stat /a -> 755 2 0:0 0 never
         stat /b -> 755 3 0:0 4 never
         mkdir /empty 755
         rename /a /empty
         rename /b/f /b/f
         link /b/f /b/same
         rename /b/f /b/same
         ls /b -> f same sub
         rename /b/f /empty/f noreplace
         rename /b/same /empty/f noreplace -> EEXIST
         rename /b/same /none exchange -> ENOENT
         paths /b/sub -> b/sub",
    );
}

#[test]
fn exchanges() {
    check(
        "mkdir /a 755
         mkdir /a/sub 755
         mkfile /f 644
         rename /a/sub /f exchange
         stat /a/sub -> 644 1 0:0 0 never
         stat /f -> 755 2 0:0 0 never
         stat /a -> 755 2 0:0 3 never
         stat / -> 755 4 0:0 2 never
         mkdir /f/deep 755
         rename /f/deep /f exchange -> EINVAL
         rename /f /f/deep exchange -> EINVAL
         rename /f /a exchange
         ls /f -> sub
         ls /a -> deep",
    );
}

#[test]
fn a_read_moves_the_access_time_forward_and_nothing_else() {
    check(
        "mkdir /d 755
         mkdir /priv 700
         utimes /d 5
         times /d -> 5 5 changed
         readat /d 9
         times /d -> 9 5 changed
         readat /d 7
         times /d -> 9 5 changed
         su 5
         readat /d 12
         readat /priv 12 -> EACCES
         su 0
         times /d -> 12 5 changed
         mkdir /e 755
         readat /e 99999999999
         times /e -> 99999999999 1021 same",
    );
}

#[test]
fn permissions_bind() {
    check(
        "mkdir /d 755
         mkfile /d/f 600
         mkdir /priv 700
         mkfile /priv/f 666
         su 5
         mkfile /d/g 644 -> EACCES
         unlink /d/f -> EACCES
         rename /d/f /d/g -> EACCES
         open /d/f 0 h -> EACCES
         open /d/f 1 h -> EACCES
         stat /priv/f -> EACCES
         ls /priv -> EACCES
         chmod /d/f 644 -> EPERM
         chown /d/f 5 - -> EPERM
         truncate /d/f 0 -> EACCES
         touch /d/f -> EACCES
         utimes /d/f 5 -> EPERM
         su 0
         chmod /d 777
         chown /d/f 5 50
         su 5 5
         open /d/f 2 h
         chown /d/f - 6 -> EPERM
         su 5 5 6
         chown /d/f - 6
         chown /d/f 7 - -> EPERM
         chmod /d/f 2755
         stat /d/f -> 2755 1 5:6 0 dirty
         su 5 5
         chmod /d/f 2755
         stat /d/f -> 755 1 5:6 0 dirty",
    );
}

/// 0o40 is the kernel's mark of an open for execution.
#[test]
fn a_program_that_runs_elsewhere_is_not_written() {
    check(
        "mkfile /f 755
         open /f 40 runs
         client 2
         open /f 1 w -> ETXTBSY
         open /f 1000 w -> ETXTBSY
         truncate /f 0 -> ETXTBSY
         open /f 0 reads
         close reads
         chmod /f 711
         client 1
         open /f 1 own
         close own
         client 2
         open /f 40 too
         close too
         client 1
         close runs
         client 2
         open /f 2 w
         truncate /f 0 -> truncate
         client 1
         open /f 40 runs -> ETXTBSY
         client 2
         close w
         client 1
         open /f 40 runs",
    );
}

#[test]
fn a_sticky_directory_protects_names() {
    check(
        "mkdir /tmp 777
         chmod /tmp 1777
         su 5
         mkfile /tmp/mine 644
         mkdir /tmp/dir 755
         su 6
         mkfile /tmp/other 644
         unlink /tmp/mine -> EPERM
         rename /tmp/mine /tmp/x -> EPERM
         rename /tmp/other /tmp/mine -> EPERM
         rmdir /tmp/dir -> EPERM
         su 5
         rename /tmp/mine /tmp/x
         unlink /tmp/x",
    );
}

#[test]
fn set_group_id_is_inherited_by_directories() {
    check(
        "mkdir /d 777
         chown /d 0 42
         chmod /d 2777
         su 5
         mkfile /d/f 666
         mkdir /d/sub 777
         stat /d/f -> 644 1 5:42 0 never
         stat /d/sub -> 2755 2 5:42 0 never",
    );
}

/// Else its owner makes files of a group that is not the owner's.
#[test]
fn only_a_member_of_its_group_sets_set_group_id_on_a_directory() {
    check(
        "mkdir /d 755
         chown /d 5 42
         su 5 5 42
         chmod /d 2755
         stat /d -> 2755 2 5:42 0 never
         su 5 5
         chmod /d 2755
         stat /d -> 755 2 5:42 0 never",
    );
}

#[test]
fn ids_that_lend_power_fall_with_owner_and_content() {
    check(
        "mkdir /d 777
         chmod /d 777
         su 5 5
         mkfile /d/f 644
         chmod /d/f 6755
         stat /d/f -> 6755 1 5:5 0 never
         truncate /d/f 10 -> truncate
         stat /d/f -> 755 1 5:5 10 dirty
         chmod /d/f 6755
         su 0
         chown /d/f 9 9
         stat /d/f -> 755 1 9:9 10 dirty
         chmod /d/f 2666
         su 9 9
         truncate /d/f 9 -> truncate
         stat /d/f -> 2666 1 9:9 9 dirty
         su 9 8
         truncate /d/f 8 -> truncate
         stat /d/f -> 666 1 9:9 8 dirty",
    );
}

#[test]
fn access_lists_are_evaluated_and_inherited() {
    check(
        "mkdir /d 755
         mkfile /d/f 640
         su 5
         open /d/f 0 h -> EACCES
         setacl system.posix_acl_access /d/f u:6 g:4 o:0 -> EPERM
         su 0
         setacl system.posix_acl_access /d/f u:6 u5:6 g:4 m:6 o:0
         stat /d/f -> 660 1 0:0 0 never
         su 5
         open /d/f 2 h
         su 0
         chmod /d/f 640
         su 5
         open /d/f 2 h -> EACCES
         open /d/f 0 h
         su 0
         setacl system.posix_acl_default /d u:7 u5:7 g:5 m:7 o:0
         mkfile /d/g 666
         stat /d/g -> 660 1 0:0 0 never
         mkdir /d/sub 777
         stat /d/sub -> 770 2 0:0 0 never
         listx /d/sub -> system.posix_acl_access system.posix_acl_default
         setacl system.posix_acl_access /d/g u:6 g:6 o:6
         stat /d/g -> 666 1 0:0 0 never
         listx /d/f -> system.posix_acl_access lustre.lov
         setacl system.posix_acl_default /d/f u:7 g:5 o:0 -> EACCES
         setacl system.posix_acl_access /d/f u:7 -> EINVAL
         rmx /d system.posix_acl_default
         rmx /d system.posix_acl_default -> ENODATA",
    );
}

#[test]
fn extended_attributes() {
    let long = "x".repeat(251);
    check(&format!(
        "mkfile /f 644
         mkfifo /p 666
         setx /f user.a one
         setx /f user.a two 1 -> EEXIST
         setx /f user.b two 2 -> ENODATA
         setx /f user.a three 2
         setx /f user.a three 4 -> EINVAL
         getx /f user.a -> three
         getx /f user.b -> ENODATA
         setx /f nothing x -> EOPNOTSUPP
         setx /f user. x -> EOPNOTSUPP
         setx /f user.{long} x -> ERANGE
         setx /p user.a x -> EPERM
         setx /f trusted.t x
         setx /f security.s x
         listx /f -> security.s trusted.t user.a lustre.lov
         su 5
         listx /f -> security.s user.a lustre.lov
         getx /f user.a -> three
         getx /f trusted.t -> ENODATA
         getx /f security.s -> x
         setx /f user.a x -> EACCES
         setx /f trusted.t x -> EPERM
         setx /f security.s x -> EPERM
         rmx /f user.a -> EACCES
         su 0
         rmx /f user.a
         rmx /f user.a -> ENODATA
         unlink /f
         inodes -> 2"
    ));
}

#[test]
fn layouts_come_from_file_directory_root_and_file_system() {
    check(
        "mkdir /d 755
         mkfile /d/f 644
         layout /d/f -> 1 from 0
         mkfile /d/g 644
         layout /d/g -> 1 from 1
         setstripe /d 2 1
         layout /d -> 2 from 1
         mkfile /d/h 644
         layout /d/h -> 2 from 1
         mkdir /d/sub 755
         layout /d/sub -> 2 from 1
         setstripe / 3 -1
         mkdir /e 755
         layout /e -> none
         mkfile /d/sub/f 644
         layout /d/sub/f -> 2 from 1
         setx /d lustre.lov x -> ERANGE
         rmx /d lustre.lov
         rmx /d lustre.lov -> ENODATA
         layout /d -> none
         setstripe /d/f 4 0
         layout /d/f -> 1 from 0
         rmx /d/f lustre.lov -> EPERM
         su 5
         setstripe /d 1 0 -> EPERM",
    );
}

#[test]
fn a_list_of_osts_is_kept_in_its_order_and_must_exist() {
    check(
        "mkdir /d 755
         setlist /d 2 0 3
         mkfile /d/f 644
         osts_of /d/f -> 2 0 3
         mkdir /d/sub 755
         mkfile /d/sub/f 644
         osts_of /d/sub/f -> 2 0 3
         setlist /d 2 9 -> EINVAL
         setstripe /d 2 9 -> EINVAL
         setlist / 1
         mkfile /g 644
         osts_of /g -> 1",
    );
}

#[test]
fn a_delayed_file_has_no_layout_until_it_is_told_one_or_written() {
    check(
        "creat /f 644 20102 f -> created
         layout /f -> none
         stat /f -> 644 1 0:0 0 dirty
         setlist /f 3 1
         osts_of /f -> 3 1
         setlist /f 0
         osts_of /f -> 3 1
         close f wrote 5
         stat /f -> 644 1 0:0 5 clean
         creat /g 644 20102 g -> created
         close g
         stat /g -> 644 1 0:0 0 never
         open /g 2 g
         layout /g -> 1 from 0",
    );
}

#[test]
fn a_layout_copied_by_xattr_shapes_only_new_files() {
    check(
        "mkdir /d 755
         setstripe /d 3 1
         mkfile /d/f 644
         osts_of /d/f -> 1 2 3
         creat /g 644 20102 g -> created
         setlike /g /d/f
         layout /g -> 3 from 0
         setlike /d/f /g
         osts_of /d/f -> 1 2 3
         setlov /d/f 0BD70BD0
         setlov /d 0BD70BD0 -> EOPNOTSUPP
         mkdir /e 755
         setlike /e /d
         layout /e -> 3 from 1
         setlike /e /d/f
         layout /e -> 3 from -1",
    );
}

#[test]
fn a_file_without_osts_exists_and_is_placed_when_it_is_written() {
    check(
        "osts 0
         mkfile /f 644
         layout /f -> none
         open /f 1 h -> EINPROGRESS
         creat /g 644 1 h -> EINPROGRESS
         open /f 0 r
         osts 2
         open /f 1 h
         layout /f -> 1 from 0",
    );
}

#[test]
fn the_only_writer_hands_the_size_over() {
    check(
        "creat /f 644 1 a -> created
         stat /f -> 644 1 0:0 0 dirty
         close a wrote 100
         stat /f -> 644 1 0:0 100 clean
         open /f 0 r
         close r
         stat /f -> 644 1 0:0 100 clean
         open /f 1 w
         stat /f -> 644 1 0:0 100 dirty
         close w
         stat /f -> 644 1 0:0 100 clean
         close w -> EBADF",
    );
}

#[test]
fn a_file_that_nobody_wrote_has_no_objects_to_destroy() {
    check(
        "creat /f 644 1 a -> created
         close a
         stat /f -> 644 1 0:0 0 never
         open /f 1001 t
         close t
         unlink /f
         destroys -> 0
         creat /g 644 1 b -> created
         close b wrote 5
         unlink /g
         destroys -> 1
         creat /h 644 1 c -> created
         unlink /h
         inodes -> 2
         close c wrote 7
         inodes -> 1
         destroys -> 2",
    );
}

#[test]
fn writers_side_by_side_leave_the_size_to_the_osts() {
    check(
        "creat /f 644 1 a -> created
         commit
         client 2
         open /f 1 b
         close a wrote 10
         stat /f -> 644 1 0:0 0 dirty
         known /f 10
         stat /f -> 644 1 0:0 0 dirty
         close b wrote 20
         stat /f -> 644 1 0:0 0 dirty
         known /f 20
         stat /f -> 644 1 0:0 20 clean",
    );
}

#[test]
fn a_size_is_taken_only_from_whom_the_contents_could_be() {
    check(
        "mkdir /d 777
         chmod /d 777
         su 5
         creat /d/f 444 1 a -> created
         su 0
         open /d/f 1 b
         close a wrote 10
         close b wrote 20
         client 2
         su 6
         known /d/f 7
         stat /d/f -> 444 1 5:5 0 dirty
         su 5
         known /d/f 7
         stat /d/f -> 444 1 5:5 0 dirty
         client 1
         known /d/f 20
         stat /d/f -> 444 1 5:5 20 clean
         truncate /d/f 3 -> EACCES
         su 0
         client 2
         truncate /d/f 3 -> truncate
         known /d/f 3
         stat /d/f -> 444 1 5:5 3 clean",
    );
}

#[test]
fn the_planted_bug_of_sizes_shows() {
    check_with(
        Bugs::plant("mdt.clean_size_despite_writers"),
        "creat /f 644 1 a -> created
         open /f 1 b
         close a wrote 10
         stat /f -> 644 1 0:0 10 clean",
    );
}

#[test]
fn truncation_is_marked_first_and_known_later() {
    check(
        "creat /f 644 1 a -> created
         close a wrote 100
         truncate /f 30 -> truncate
         stat /f -> 644 1 0:0 30 dirty
         known /f 30
         stat /f -> 644 1 0:0 30 clean
         open /f 1001 t -> truncate
         stat /f -> 644 1 0:0 0 dirty
         close t
         stat /f -> 644 1 0:0 0 dirty
         known /f 0
         stat /f -> 644 1 0:0 0 clean
         mkdir /d 755
         truncate /d 0 -> EISDIR
         mkfifo /p 644
         truncate /p 0 -> EINVAL
         truncate /f 9223372036854775808 -> EFBIG
         open /d 1 x -> EISDIR
         open /f 200000 x -> ENOTDIR",
    );
}

#[test]
fn while_a_client_cuts_a_file_nobody_else_says_its_size() {
    check(
        "creat /f 644 1 a -> created
         close a wrote 100
         truncate /f 30 -> truncate
         client 2
         known /f 100
         stat /f -> 644 1 0:0 30 dirty
         open /f 1 b
         close b wrote 100
         stat /f -> 644 1 0:0 30 dirty
         client 1
         known /f 30
         client 2
         known /f 30
         stat /f -> 644 1 0:0 30 clean
         open /f 1001 t -> truncate
         client 1
         known /f 30
         stat /f -> 644 1 0:0 0 dirty
         client 2
         close t wrote 7
         stat /f -> 644 1 0:0 7 clean",
    );
}

#[test]
fn open_files_outlive_their_names() {
    check(
        "creat /f 644 2 a -> created
         creat /g 644 2 b -> created
         unlink /f
         stat /f -> ENOENT
         rename /g /f
         inodes -> 3
         close a
         inodes -> 2
         mkdir /d 755
         open /d 200000 d
         rmdir /d
         inodes -> 3
         close d
         inodes -> 2
         creat /f 644 200 x -> EEXIST
         creat /f 644 0 y
         close y
         close b
         unlink /f
         inodes -> 1",
    );
}

#[test]
fn a_file_without_a_name_goes_with_its_last_close() {
    check(
        "mkdir /d 755
         tmpfile /d 600 0 r -> EINVAL
         tmpfile /d 600 2 a -> created
         inodes -> 3
         close a
         inodes -> 2
         tmpfile /d 640 2 b -> created
         linkopen b /d/f
         stat /d/f -> 640 1 0:0 0 dirty
         linkopen b /d/g
         stat /d/g -> 640 2 0:0 0 dirty
         close b
         unlink /d/f
         unlink /d/g
         inodes -> 2
         tmpfile /d 640 202 c -> created
         linkopen c /d/h -> ENOENT
         creat /d/i 644 2 d -> created
         unlink /d/i
         linkopen d /d/i -> ENOENT
         close c
         close d
         chmod /d 500
         su 7
         tmpfile /d 640 2 e -> EACCES
         tmpfile /none 640 2 f -> ENOENT",
    );
}

#[test]
fn a_change_that_builds_on_anothers_commits_it_first() {
    check(
        "mkdir /shared 777
         commit
         commits -> 2
         mkfile /shared/a 644
         client 2
         mkfile /shared/b 644
         commits -> 2
         unlink /shared/a
         commits -> 3
         mkfile /shared/a 644
         commits -> 3
         client 1
         chmod /shared/b 600
         commits -> 3
         mkfile /shared/a 644 -> EEXIST
         rename /shared/a /shared/c
         commits -> 4
         client 2
         rename /shared/c /c
         unlink /c
         unlink /shared/b
         client 1
         rmdir /shared
         commits -> 6",
    );
}

#[test]
fn a_full_store_refuses_and_lets_delete() {
    check(
        "mkdir /d 755
         creat /d/f 644 1 a -> created
         full on
         mkfile /d/g 644 -> ENOSPC
         link /d/f /d/g -> ENOSPC
         setx /d/f user.a b -> ENOSPC
         mkdir /e 755 -> ENOSPC
         chmod /d/f 600
         open /d/f 0 r
         close r
         close a wrote 5
         stat /d/f -> 600 1 0:0 5 clean
         truncate /d/f 2 -> truncate
         rename /d/f /d/h
         unlink /d/h
         rmdir /d
         full off
         mkfile /g 644",
    );
}

#[test]
fn removed_directories_take_no_names() {
    check(
        "mkdir /d 755
         open /d 200000 d
         mkdir /e 755
         rmdir /d
         ls /e ->
         rename /e /d
         ls /d ->",
    );
}

#[test]
fn stripes_stated_to_exist_must_exist() {
    check(
        "creat /f 644 2 a -> created
         stripes /f -> 0
         open /f 2 b
         close a wrote 10 1
         stripes /f -> 0
         close b wrote 20 1
         stripes /f -> 0
         known /f 20 3
         stripes /f -> 3
         open /f 2 a
         close a wrote 40 6
         stripes /f -> 7
         chmod /f 600
         truncate /f 5 -> truncate
         stripes /f -> 7
         known /f 5
         stripes /f -> 7
         truncate /f 0 -> truncate
         stripes /f -> 0
         known /f 0 7
         stripes /f -> 7
         open /f 1002 a -> truncate
         stripes /f -> 0
         close a wrote 1 2
         stripes /f -> 2",
    );
}

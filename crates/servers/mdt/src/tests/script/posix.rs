//! Rules of Linux that depend on the content and the owner of a file.

use super::check;

#[test]
fn a_capability_falls_with_content_and_owner() {
    check(
        "mkfile /f 646
         mkfile /mine 600
         setx /f user.a kept
         setx /f security.capability c
         truncate /f 5 -> truncate
         getx /f security.capability -> ENODATA
         setx /f security.capability c
         chown /f 7 -
         getx /f security.capability -> ENODATA
         setx /f security.capability c
         chmod /f 646
         touch /f
         getx /f security.capability -> c
         killcap /f
         getx /f security.capability -> ENODATA
         killcap /f
         setx /f security.capability c
         open /f 1001 a -> truncate
         getx /f security.capability -> ENODATA
         close a
         listx /f -> user.a lustre.lov
         setx /mine security.capability c
         setx /f security.capability c
         setx /f security.other o
         su 9
         killcap /mine -> EACCES
         rmx /mine security.capability -> EACCES
         rmx /f security.other -> EPERM
         setx /f security.capability d -> EPERM
         rmx /f security.capability
         getx /f security.capability -> ENODATA
         rmx /f security.capability -> ENODATA",
    );
}

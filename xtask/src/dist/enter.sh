#!/bin/sh
# enter.sh ROOT COMMAND...: runs a command as root in a root of Debian, with processes and mounts of its own. ROOT is changed;
# nothing else is, and nothing runs or stays mounted afterwards.
set -eu
exec unshare --mount --pid --fork --kill-child sh -euc '
root=$1
shift
mount --bind "$root" "$root"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
mount -t proc proc "$root/proc"
mkdir -p "$root/.old"
cd "$root"
pivot_root . .old
cd /
umount -l /.old
export PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive
exec "$@"
' sh "$@"

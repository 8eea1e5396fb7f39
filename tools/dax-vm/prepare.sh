#!/bin/bash
# prepare.sh PROGRAM...: puts Debian's kernel, busybox, ndctl, mkfs and the programs into $W/vmlinuz and
# $W/guest.cpio. Packages are downloaded and unpacked, not installed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$W/debs" "$W/packages"
cd "$W/debs"
kernel=$(apt-cache depends linux-image-amd64 | awk '/Depends/ { print $2; exit }')
for package in "$kernel" busybox-static ndctl libndctl6 libdaxctl1 libuuid1 libkmod2 libjson-c5 libkeyutils1 \
    libiniparser1 liblzma5 libzstd1 libssl3 e2fsprogs libext2fs2 libcom-err2 libss2 libblkid1 \
    xfsprogs libinih1 liburcu8 libedit2 libtinfo6 libbsd0 libmd0 libdevmapper1.02.1 libselinux1 libudev1; do
  [ -e "$W/packages/.$package" ] && continue
  apt-get -qq download "$package"
  dpkg -x "$package"_*.deb "$W/packages"
  touch "$W/packages/.$package"
done
cd "$W"
cp packages/boot/vmlinuz-* vmlinuz
root=$W/root
rm -rf "$root"
mkdir -p "$root"/{bin,lib,lib64,proc,sys,dev,mnt,tmp,modules}
cp packages/bin/busybox "$root/bin/busybox"
for name in $(packages/bin/busybox --list); do [ "$name" = busybox ] || ln -s busybox "$root/bin/$name"; done

libraries=$W/packages/usr/lib/x86_64-linux-gnu:$W/packages/lib/x86_64-linux-gnu
put() { # FILE [NAME]: a program with its libraries
  rm -f "$root/bin/${2:-$(basename "$1")}"
  cp -L "$1" "$root/bin/${2:-$(basename "$1")}"
  LD_LIBRARY_PATH=$libraries ldd "$1" | awk '/=> \//{ print $3 }' | while read -r library; do
    cp -L -n "$library" "$root/lib/"
  done
}
put packages/usr/bin/ndctl
put packages/sbin/mke2fs mkfs.ext4
put packages/sbin/debugfs
put packages/sbin/mkfs.xfs
cp -L /lib64/ld-linux-x86-64.so.2 "$root/lib64/"
for program in "$@"; do
  put "$program"
  strip "$root/bin/$(basename "$program")"
done

modules=$(echo packages/lib/modules/*/kernel)
# In the order in which they are loaded. What is not there is built in.
for name in virtio_ring virtio virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci virtio_blk virtio_console \
    crc32c-intel crc32c_generic libcrc32c crc16 mbcache jbd2 ext4 xfs libnvdimm nd_btt nd_pmem nfit nd_virtio virtio_pmem \
    nd_e820 device_dax dax_pmem hwpoison-inject mce-inject; do
  file=$(find "$modules" -name "$name.ko*" -o -name "${name//_/-}.ko*" | head -1)
  [ -z "$file" ] || { cp "$file" "$root/modules/$name.ko" && echo "/modules/$name.ko" >> "$root/modules/order"; }
done
install -m 755 "$here/init" "$root/init"
(cd "$root" && find . | "$W/packages/bin/busybox" cpio -o -H newc 2>/dev/null) > guest.cpio

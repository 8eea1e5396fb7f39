#!/bin/bash
# media.sh [STEP...]: what Lapis does on other media than ext4 with DAX, and where memory fails or ends. Each step is one boot of a new
# module, and prints a line for each thing that has to hold. Exit code 1 if one does not.
here=${0%/*} bad=0
run=$W/media
mkdir -p "$run"

# What jobs are written with. `holds` runs a command and says whether it succeeded; `fails` wants a refusal and no signal.
words() {
  cat <<'EOF'
holds() { what=$1; shift; if "$@" > /tmp/out 2>&1; then echo "HOLDS $what"; else echo "FAILED $what: exit code $?"; tail -3 /tmp/out; fi; }
fails() { what=$1; shift; "$@" > /tmp/out 2>&1; code=$?; if [ $code = 1 ] || [ $code = 2 ]; then echo "HOLDS $what"; else echo "FAILED $what: exit code $code"; tail -3 /tmp/out; fi; }
says() { holds "$1" grep -q -e "$2" "$3"; }
write() { dax-writer write $1 $2 7 3000 wort,cceh 2 $3; }
format() { ndctl create-namespace -f -e namespace0.0 -m fsdax --map=mem > /dev/null 2>&1; mkfs.ext4 -F -q -b 4096 /dev/pmem0; mount_module; }
write_on() {
  rm -f /tmp/said
  dax-writer write $1 $2 7 3000 wort,cceh 2 100000 > /tmp/said 2> /tmp/error &
  until grep -q ^ready /tmp/said 2> /dev/null || ! kill -0 $! 2> /dev/null; do usleep 100000; done
  sleep 1
}
# Where a byte of the namespace, and a page of a file in it, lie in the machine's memory.
at() { echo $(($(cat /sys/bus/nd/devices/pfn0.*/resource /sys/bus/nd/devices/dax0.*/resource 2> /dev/null) + $1)); }
of_file() { sync; at $(($(debugfs -R "bmap $1 $2" /dev/pmem0 2> /dev/null) * 4096)); }
errors() { mount -t debugfs debug /sys/kernel/debug; echo 1 > /proc/sys/vm/memory_failure_early_kill; }
# The kernel finds a page bad, and tells who has it mapped.
poison() { echo $(($1 / 4096)) > /sys/kernel/debug/hwpoison/corrupt-pfn; }
# The processor reports an error of memory, of which the kernel makes a bad block.
bad_block() { (cd /sys/kernel/debug/mce-inject; echo sw > flags; echo 0xbd0000000008009f > status; echo 0x8c > misc; echo 0 > cpu; echo $1 > addr; echo 4 > bank); usleep 300000; }
# Each command answers, or says what $2 matches.
told() {
  refused=0
  for command in "get --table 0 shared" check info; do
    lapis $command --dir $1 > /tmp/told 2>&1 && continue
    refused=$((refused + 1))
    grep -q "$2" /tmp/told || { cat /tmp/told; return 1; }
  done
}
kill_writer() { dax-writer write $1 $2 7 3000 wort,cceh 2 100000 > /tmp/said 2>&1 & sleep 2; kill -9 $!; wait $!; }
EOF
}

step() { # NAME BYTES: the job comes from standard input
  image=$run/$1.img
  rm -f "$image" && truncate -s "$2" "$image"
  { words; cat; } > "$run/$1.job"
  SECONDS_AT_MOST=200 "$here/vm.sh" "$image" "$run/$1.job" "$run/$1.log"
  rm -f "$image"
  tr -d '\r' < "$run/$1.log" | grep -a -A3 -e '^HOLDS' -e '^FAILED' | grep -a -v -e '^--' -e ^Killed -e GUEST-END -e reboot: | sed "s/^/  $1: /"
  grep -q -a '^GUEST-END' "$run/$1.log" || { echo "  $1: FAILED the guest did not get to the end: $run/$1.log"; bad=1; }
  ! grep -q -a '^FAILED' "$run/$1.log" || bad=1
}

device_dax() {
  step device-dax 128M <<'EOF'
ndctl create-namespace -f -e namespace0.0 -m devdax --align 2M > /dev/null 2>&1
holds "a store is made on the device" write /tmp/s /dev/dax0.0 30
lapis info --dir /tmp/s --json > /tmp/info
says "it is known as device-DAX" '"device-DAX' /tmp/info
says "huge pages are mapped" '"mapped_page_bytes": 2097152' /tmp/info
says "lines are written back" '"flush": "clwb"' /tmp/info
fails "another store does not take the device" lapis put --dir /tmp/t --pmem /dev/dax0.0 k v
kill_writer /tmp/s /dev/dax0.0
holds "what was killed is opened again" write /tmp/s /dev/dax0.0 30
holds "and is in order" lapis check --dir /tmp/s
errors
write_on /tmp/s /dev/dax0.0
poison $(at 4096)
wait $!
holds "a page that the kernel finds bad is an error, not a signal" [ $? = 1 ]
says "that names file and offset" 'offset 0x0 of /tmp/s/memory.lapis' /tmp/error
holds "what was acknowledged is there" write /tmp/s /dev/dax0.0 30
holds "the laboratory takes the device" lapis lab index --index wort --operation load --keys 2000 --measured-only --pmem /dev/dax0.0
bad_block $(at 8192)
holds "get, check and info name a bad block" told /tmp/s 'memory.lapis.*offset 0x2000 first'
holds "and open nothing" [ $refused = 3 ]
EOF
}

# The plug-in counts what is flushed, and cuts nothing.
eadr() {
  mkdir -p "$run/eadr"
  MODULE=eadr PLUGIN=file=$W/pmcut.so,pmem=$run/eadr.img,phys=0x100000000,out=$run/eadr step eadr 128M <<'EOF'
format
holds "a store is made" write /mnt/s /mnt/s 30
lapis info --dir /mnt/s --json > /tmp/info
says "the caches count as kept" '"persistence_domain": "caches (eADR)"' /tmp/info
says "a power cut is survived" '"durability": "power-fail"' /tmp/info
says "nothing is written back" '"flush": "none (eADR)"' /tmp/info
EOF
  if grep -q 'flushes 0 .*fences [1-9]' "$run/eadr/report"; then
    echo "  eadr: HOLDS fences and not one flush were executed"
  else
    echo "  eadr: FAILED there were flushes, or no fences: $(grep ^end "$run/eadr/report")"
    bad=1
  fi
}

virtio_pmem() {
  MODULE=virtio step virtio-pmem 128M <<'EOF'
wait_for_module
mkfs.ext4 -F -q -b 4096 /dev/pmem0
mount_module
holds "a store is made" write /mnt/s /mnt/s 30
lapis info --dir /mnt/s --json > /tmp/info
says "without MAP_SYNC it is an ordinary file" '"flush": "none (page cache)"' /tmp/info
says "which survives the process alone" '"durability": "process-crash"' /tmp/info
EOF
}

memmap() {
  MODULE=none APPEND='memmap=128M!1024M' step memmap 1M <<'EOF'
format
holds "a store is made" write /mnt/s /mnt/s 30
lapis info --dir /mnt/s --json > /tmp/info
says "DRAM that poses as persistent memory is told" '"emulated": true' /tmp/info
says "and survives the process alone" '"durability": "process-crash"' /tmp/info
EOF
}

bad_memory() {
  step bad-memory 128M <<'EOF'
format
write_on /mnt/s /mnt/s
truncate -s 1M /mnt/s/memory.lapis
wait $!
holds "a file made shorter under a store is an error, not a signal" [ $? = 1 ]
says "that names it" memory.lapis /tmp/error
fails "it is refused afterwards" lapis get --dir /mnt/s --table 0 k
errors
write_on /mnt/t /mnt/t
poison $(of_file /t/memory.lapis 0)
wait $!
holds "a page that the kernel finds bad is an error, not a signal" [ $? = 1 ]
says "that names file and offset" 'offset 0x0 of /mnt/t/memory.lapis' /tmp/error
holds "what was acknowledged is there" write /mnt/t /mnt/t 30
bad_block $(of_file /t/memory.lapis 3000)
holds "get, check and info name a bad block" told /mnt/t 'memory.lapis.*offset 0xbb8000 first'
holds "and open nothing" [ $refused = 3 ]
# Who does not know of them gets the kernel's signal when he comes to one.
mount --bind /dev/null /sys/block/pmem0/badblocks
for page in 1000 500 300 200 150 100 75 50 40 30 20 15 10 7 5 4 3 2 1 0; do
  bad_block $(of_file /t/memory.lapis $page)
  holds "with pages from $page on bad they answer, or name file and offset" told /mnt/t 'offset 0x[0-9a-f]* of /mnt/t/memory.lapis'
done
holds "without the header all name them" [ $refused = 3 ]
EOF
}

full_disk() {
  step full-disk 128M <<'EOF'
format
holds "a store is made" write /mnt/s /mnt/s 30
dd if=/dev/zero of=/mnt/filler bs=64k 2> /dev/null
dax-writer write /mnt/s /mnt/s 7 30000 wort,cceh 2 3000 > /tmp/said 2>&1
holds "commits are refused when there is no room" grep -q ^full /tmp/said
holds "what was committed is in order" lapis check --dir /mnt/s
rm /mnt/filler
holds "with room there are commits again" write /mnt/s /mnt/s 30
holds "and all is in order" lapis check --dir /mnt/s
EOF
}

xfs() {
  step xfs 512M <<'EOF'
ndctl create-namespace -f -e namespace0.0 -m fsdax --map=mem > /dev/null 2>&1
mkfs.xfs -q -f -m reflink=0 /dev/pmem0
mount_module
holds "a store is made" write /mnt/s /mnt/s 30
lapis info --dir /mnt/s --json > /tmp/info
says "MAP_SYNC is granted" '"medium": "DAX file (MAP_SYNC)"' /tmp/info
kill_writer /mnt/s /mnt/s
holds "what was killed is opened again" write /mnt/s /mnt/s 30
holds "and is in order" lapis check --dir /mnt/s
EOF
}

laboratory() {
  step laboratory 128M <<'EOF'
format
holds "indexes are measured" lapis lab index --index wort --operation load --keys 2000 --measured-only --pmem /mnt
holds "and so is the memory" lapis lab device --this-machine --experiment persist-latency --mebibytes 64 --milliseconds 5 --measured-only --pmem /mnt
holds "nothing of it stays" test -z "$(ls /mnt | grep -v lost+found)"
EOF
}

steps=${*:-device_dax eadr virtio_pmem memmap bad_memory full_disk xfs laboratory}
for step in $steps; do $step; done
exit $bad

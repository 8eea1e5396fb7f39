#!/bin/bash
# cut.sh CUTS INDEXES [PLUGIN-ARGUMENTS]: cuts the power about CUTS times while a store is made, written to, closed, opened,
# killed and opened again. Each image is recovered and compared with what was acknowledged.
# SEED, THREADS, OPERATIONS, LONGEST, MEMORY (where the store has its persistent memory: a device-DAX device). AGAIN=1: instead, while what a cut of the run before left is recovered. FORMATTED: the file with
# an empty file system. IN_GUEST=1: images are recovered by a machine of their own and not by this one.
# Exit code 1 if an image is bad, 2 if there is none.
cuts=$1 indexes=$2 arguments=${3:-} seed=$SEED longest=${LONGEST:-3000} bad=0 found=0
run=$W/cuts
before=${FORMATTED:-$W/formatted.img} words=""
if [ -n "${AGAIN:-}" ]; then
  before=$W/crashed.img
  # Words are seen where they are written, whoever writes them.
  words="echo ready; $(tr , '\n' < "$W/crashed" | awk '{ printf "echo ack %d %d done; ", NR - 1, $1 }')"
fi
rm -rf "$run" && mkdir -p "$run" && cp --sparse=always "$before" "$run/memory.img"
write="dax-writer write /mnt/s ${MEMORY:-/mnt/s} $seed $longest $indexes ${THREADS:-3}"
{
  echo "echo 0 > /proc/sys/kernel/randomize_va_space; mount_module"
  if [ -n "${AGAIN:-}" ]; then
    echo "$words $write 3 > /dev/null; echo WROTE \$?"
  else
    echo "$write ${OPERATIONS:-60} > /dev/null; echo WROTE \$?"
    echo "$write 100000 > /dev/null & sleep 2; kill -9 \$!; wait"
    echo "$write ${OPERATIONS:-60} > /dev/null; echo WROTE \$?"
  fi
} > "$run/job"
# Some thousand fences are waited for.
PLUGIN=file=$W/pmcut.so,pmem=$(readlink -f "$run/memory.img"),phys=0x100000000,out=$run,images=$((2 * cuts)),seed=$seed,switch=300,${arguments:-every=$((9000 / cuts + 1))} \
  SECONDS_AT_MOST=600 PROCESSORS=2 "${0%/*}/vm.sh" "$run/memory.img" "$run/job" "$run/log"
verify() {
  timeout 60 taskset -c "$CPU" "$W/dax-writer" verify "$1" "$seed" "$longest" "$indexes" "$2" 2>&1
}
# The file system's journal is replayed, and its files are copied out of it; so are a device's bytes, behind the file system.
recover() {
  # Behind the namespace's own blocks.
  local at="$1?offset=$((2 << 20))"
  rm -rf "$run/store" && mkdir "$run/store"
  e2fsck -fy "$at" > "$run/e2fsck" 2>&1
  debugfs -R "rdump /s $run/store" "$at" > /dev/null 2>&1
  [ -z "${MEMORY:-}" ] || [ ! -h "$run/store/s/memory.lapis" ] || {
    rm "$run/store/s/memory.lapis"
    dd if="$1" of="$run/store/s/memory.lapis" bs=1M skip=66 count=46 conv=sparse status=none
  }
  verify "$run/store/s" "$2"
}
recover_in_guest() {
  echo "mount_module; dax-writer verify /mnt/s $seed $longest $indexes $2 && echo VERIFIED" > "$run/verify-job"
  cp --sparse=always "$1" "$run/recovered.img"
  SECONDS_AT_MOST=100 "${0%/*}/vm.sh" "$run/recovered.img" "$run/verify-job" "$run/verify"
  tr -d '\r' < "$run/verify" | grep -a -v -e GUEST-END -e 'reboot:'
  grep -q -a VERIFIED "$run/verify"
}
while read -r _ number _ acknowledged rest; do
  image=$run/cut-$(printf %04d "$number").img
  found=$((found + 1))
  if said=$(recover${IN_GUEST:+_in_guest} "$image" "$acknowledged" < /dev/null); then
    # One that has something to be recovered is kept for the next run.
    if [ -z "${AGAIN:-}" ] && [ "$acknowledged" != none ] && [ $((number % 3)) = 0 ]; then
      mv "$image" "$W/crashed.img" && echo "$acknowledged" > "$W/crashed"
    fi
    rm -f "$image"
  else
    bad=$((bad + 1))
    [ $bad -gt "${SHOWN:-5}" ] || echo "  BAD $image $acknowledged $rest: $(echo "$said" | tail -1 | cut -c1-300)"
  fi
done < <(grep '^cut' "$run/report")
grep -q -a 'WROTE [^0]' "$run/log" && { echo "  the writer failed: $run/log"; bad=$((bad + 1)); }
echo "$found $bad" >> "${TALLY:-$W/tally}"
echo "  $indexes: $found cuts, $bad bad; $(grep '^end' "$run/report")"
[ $found -gt 0 ] || exit 2
[ $bad = 0 ]

#!/bin/bash
# run.sh [CUTS [KILLS [SEED]]]: cuts the power of Lapis on an emulated memory module, see README.md. Exit code 1 if anything is bad.
# W: where everything is put; CPU: the processor to use; STEPS: which of the steps, all by default.
set -uo pipefail
cuts=${1:-300} kills=${2:-20}
export SEED=${3:-$RANDOM} CPU=${CPU:-0} W=${W:-${TMPDIR:-/tmp}/lapis-dax-vm}
here=$(cd "$(dirname "$0")" && pwd)
cd "$here" || exit 2
mkdir -p "$W"
bad=0
step() { echo "== $(date +%T) $*"; }
check() { "$@" || { bad=1; echo "  BAD: $*"; }; }
blind() { # PLUGIN-ARGUMENTS: what the plug-in breaks must be found
  SHOWN=1 TALLY=/dev/null ./cut.sh 30 "$(pair 0)" "$1"
  [ $? = 1 ] || { bad=1; echo "  BAD: the rig is blind for $1"; }
}
is_wanted() { [[ " ${STEPS:-cuts growth guest device blind fences kills media} " == *" $1 "* ]]; }

step "build, packages, format; seed $SEED"
cargo build --quiet --release -p lapis-dax-writer -p lapis-cli || exit 2
target=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
cp "$target/release/dax-writer" "$target/release/lapis" "$W/" && ./prepare.sh "$W/dax-writer" "$W/lapis" || exit 2
gcc -O2 -Wall -Wextra -fPIC -shared -o "$W/pmcut.so" pmcut.c || exit 2
format() { # FILE BYTES MKFS...
  local file=$1 bytes=$2
  shift 2
  rm -f "$file" && truncate -s "$bytes" "$file"
  cat > "$W/format.job" <<EOF
${NAMESPACES:-ndctl create-namespace -f -e namespace0.0 -m fsdax --map=mem} > /dev/null 2>&1
$* /dev/pmem0 && mount_module && umount /mnt && echo FORMATTED
EOF
  ./vm.sh "$file" "$W/format.job" "$W/format.log"
  grep -q FORMATTED "$W/format.log" || { cat "$W/format.log" "$W/format.log.qemu"; exit 2; }
}
format "$W/formatted.img" 128M mkfs.ext4 -F -q -b 4096

# Each index with its neighbour: all of them twice, with a B+-tree, the log and the pages in the same memory.
read -r -a indexes <<< "$("$W/dax-writer" indexes)"
pair() { echo "${indexes[$1]},${indexes[$((($1 + 1) % ${#indexes[@]}))]}"; }

: > "$W/tally"
if is_wanted cuts; then
  step "$cuts power cuts in all indexes, three threads"
  each=$(((cuts + ${#indexes[@]} - 1) / ${#indexes[@]}))
  for i in "${!indexes[@]}"; do
    SEED=$((SEED + i)) check ./cut.sh $((each - each / 4)) "$(pair "$i")"
    SEED=$((SEED + i)) AGAIN=1 check ./cut.sh $((each / 4 + 1)) "$(pair "$i")" every=$((1000 / each + 1))
  done
fi
if is_wanted growth; then
  step "$((cuts / 8)) power cuts while files grow"
  for i in 0 5 12; do
    LONGEST=60000 OPERATIONS=100 check ./cut.sh $((cuts / 24 + 1)) "$(pair $i)" growth=1
  done
fi
if is_wanted guest; then
  step "$((cuts / 40 + 1)) power cuts on ext4, and on XFS, recovered in the guest"
  IN_GUEST=1 check ./cut.sh $((cuts / 40 + 1)) "$(pair 1)" every=400
  format "$W/xfs.img" 512M mkfs.xfs -q -f -m reflink=0
  FORMATTED=$W/xfs.img IN_GUEST=1 check ./cut.sh $((cuts / 40 + 1)) "$(pair 4)" every=400
fi
if is_wanted device; then
  step "$((cuts / 20 + 1)) power cuts on device-DAX"
  export MODULE=labelled MEMORY=/dev/dax0.1 FORMATTED=$W/device.img
  NAMESPACES="ndctl disable-region all; ndctl init-labels -f all; ndctl enable-region all
ndctl create-namespace -m fsdax --map=mem -s 64M; ndctl create-namespace -m devdax --map=mem -s 48M" format "$FORMATTED" 129M mkfs.ext4 -F -q -b 4096
  for i in 2 9; do
    check ./cut.sh $((cuts / 40 + 1)) "$(pair $i)"
  done
  blind every=60,breakflush=40
  unset MODULE MEMORY FORMATTED
fi
awk '{ cuts += $1; bad += $2 } END { printf "   %d cuts in all, %d bad\n", cuts, bad }' "$W/tally"
if is_wanted blind; then
  step "self-test: ignored flushes must be found, and ignored syncs of files"
  blind every=60,breakflush=40
  blind every=400,breaksync=1
fi
if is_wanted fences; then
  step "self-test: single fences that are left out must be found"
  # Their logs and leaves make some necessary that the store's own log does not make up for.
  SHOWN=0 ./cut.sh 100 fptree,wort
  # Those that are passed most often.
  sort -k 6 -n -r <(grep '^site' "$W/cuts/report") | head -8 | awk '{ print $2 }' > "$W/sites"
  found=0
  while read -r site; do
    SHOWN=0 ./cut.sh 12 fptree,wort "omitfence=$site" < /dev/null
    [ $? = 1 ] && found=$((found + 1))
  done < "$W/sites"
  echo "  $found of $(wc -l < "$W/sites") are found"
  [ $found -ge 3 ] || { bad=1; echo "  BAD: the rig does not see single fences"; }
fi
if is_wanted kills; then
  step "$kills kills of the machine"
  check ./kill.sh $((kills - kills / 4)) "$(pair 1)"
  # Nothing is flushed there.
  MODULE=eadr check ./kill.sh $((kills / 4 + 1)) "$(pair 7)"
fi
if is_wanted media; then
  step "other media"
  check ./media.sh
fi
step "done: $([ $bad = 0 ] && echo good || echo BAD)"
exit $bad

#!/bin/bash
# kill.sh CYCLES INDEXES: kills the whole machine again and again while threads write, and boots the same module. What the module
# has is what was visible. Each time the guest compares what is there with what was acknowledged. SEED, THREADS.
# Exit code 1 if a cycle is bad.
cycles=$1 indexes=$2 seed=$SEED threads=${THREADS:-3} bad=0 acknowledged=none
run=$W/kills
rm -rf "$run" && mkdir -p "$run" && cp --sparse=always "$W/formatted.img" "$run/memory.img"
RANDOM=$seed
for cycle in $(seq 0 "$cycles"); do
  log=$run/boot$cycle
  cat > "$run/job" <<EOF
mount_module
[ $cycle = 0 ] || { cp -r /mnt/s /tmp/s && dax-writer verify /tmp/s $seed 3000 $indexes $acknowledged; echo VERIFIED \$?; lapis check --dir /mnt/s; echo CHECKED \$?; rm -r /tmp/s; }
sync
[ $cycle = $cycles ] || dax-writer write /mnt/s /mnt/s $seed 3000 $indexes $threads 100000 > /dev/hvc0
EOF
  PROCESSORS=2 "${0%/*}/vm.sh" "$run/memory.img" "$run/job" "$log" &
  machine=$!
  if [ "$cycle" -lt "$cycles" ]; then
    for _ in $(seq 1 600); do
      grep -q -a ^ready "$log.said" 2> /dev/null && break
      kill -0 $machine 2> /dev/null || break
      sleep 0.1
    done
    sleep $((RANDOM % 3)).$((1000 + RANDOM % 9000))
    # The machine is the child of `timeout`.
    kill -9 $(ps -o pid= --ppid $machine) $machine
    wait $machine 2> /dev/null
    acknowledged=$(awk -v threads="$threads" -v before="$acknowledged" '
      BEGIN { split(before, done, ",") } /^ready/ { ready = 1 } /^ack .* done/ { done[$2 + 1] = $3 }
      END { if (!ready) print before; else for (i = 1; i <= threads; i++) printf "%s%d", (i > 1 ? "," : ""), done[i] }' "$log.said")
  else
    wait $machine
  fi
  [ "$cycle" = 0 ] || { grep -q -a 'VERIFIED 0' "$log" && grep -q -a 'CHECKED 0' "$log"; } || { bad=$((bad + 1)); echo "  BAD cycle $cycle: $(tail -3 "$log" | tr -d '\r' | tr '\n' ' ')"; }
done
echo "  $cycles kills, $bad bad; operations acknowledged by each thread: $acknowledged"
[ $bad = 0 ]

#!/bin/bash
# vm.sh IMAGE JOB LOG: boots once, with IMAGE as the memory module, and runs JOB in the guest. Its console goes to LOG, what it
# writes to /dev/hvc0 to LOG.said.
# MODULE: nvdimm (default), labelled (for several namespaces), eadr, virtio or none; PROCESSORS; PLUGIN; SECONDS_AT_MOST; APPEND to the kernel's arguments.
image=$1 job=$2 log=$3
: > "$log" && : > "$log.said"
{ cat "$job"; head -c 4096 /dev/zero | tr '\0' '\n'; } > "$log.job"
truncate -s %512 "$log.job"
machine=q35,nvdimm=on
module="-object memory-backend-file,id=memory,share=on,mem-path=$image,size=$(stat -c %s "$image")"
case ${MODULE:-nvdimm} in
  nvdimm) module+=" -device nvdimm,memdev=memory" ;;
  labelled) module+=" -device nvdimm,memdev=memory,label-size=128K" ;;
  eadr) machine+=,nvdimm-persistence=cpu module+=" -device nvdimm,memdev=memory" ;;
  virtio) module+=" -device virtio-pmem-pci,memdev=memory" ;;
  none) module="" ;;
esac
exec taskset -c "$CPU" timeout -k 5 "${SECONDS_AT_MOST:-300}" qemu-system-x86_64 -nodefaults -no-user-config \
  -display none -no-reboot -machine $machine -m 1536M,slots=2,maxmem=8G -accel tcg,thread=single -cpu max \
  -smp "${PROCESSORS:-1}" $module -kernel "$W/vmlinuz" -initrd "$W/guest.cpio" \
  -append "console=ttyS0 quiet nokaslr no_timer_check mitigations=off no5lvl random.trust_cpu=on panic=-1 ${APPEND:-}" \
  -chardev file,id=console,path="$log" -serial chardev:console \
  -device virtio-serial-pci -chardev file,id=said,path="$log.said" -device virtconsole,chardev=said \
  -drive file="$log.job",format=raw,if=none,id=job,readonly=on -device virtio-blk-pci,drive=job \
  ${PLUGIN:+-plugin $PLUGIN} 2> "$log.qemu"

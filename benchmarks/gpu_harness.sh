#!/usr/bin/env bash
# Runs the harness on a GPU machine: benchmarks/gpu_harness.sh [FOLDER]   (about five minutes)
#
# On one GPU: every operation of one NCCL rank (nothing moves: what is left is the launch), what a
# launch costs with and without CUDA graphs, the table of matrix products, and a product beside a
# copy. On more: every operation and dtype checked over all of them, the sweep of nccl-tests, all
# pairs, two groups at once, and a product beside an all_reduce. FOLDER gets a table (.txt) and
# JSON Lines (.jsonl) of each part, and machine.txt. It ends with the parts that failed.
#
# BACKEND=gloo RANKS=2 tries the script itself on a machine without a GPU.
set -u
folder=${1:-gpu-harness}
python=${PYTHON:-python3}
backend=${BACKEND:-nccl}
gpus=${RANKS:-$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')}
large=${LARGE:-1G}
product=4096,4096,4096
[ "$backend" = nccl ] || product=256,256,256
failed=()
mkdir -p "$folder"

if [ "$gpus" -lt 1 ]; then
  echo "expected a GPU (nvidia-smi -L lists none)" >&2
  exit 2
fi

{ date -u; uname -a; nvidia-smi; nvidia-smi topo -m; "$python" -m torch.utils.collect_env; } \
  > "$folder/machine.txt" 2>&1

part() { # name, then the arguments of commsim measure
  local name=$1
  shift
  echo "== $name: commsim measure $*"
  "$python" -m commsim measure "$@" --backend "$backend" --timeout 120s \
    --output "$folder/$name.jsonl" --overwrite 2> "$folder/$name.err" | tee "$folder/$name.txt"
  if [ "${PIPESTATUS[0]}" -ne 0 ]; then
    failed+=("$name")
    tail -5 "$folder/$name.err"
  fi
}

# one rank: correctness of the harness itself, and launches
for op in all_reduce all_gather reduce_scatter all_to_all broadcast reduce gather scatter; do
  part "one-$op" $op --nproc 1 -b 1K -e 16M -f 128
done
# (NCCL does nothing for an in-place all_reduce of one rank; out of place all_gather is a copy)
part launch-nothing all_reduce --nproc 1 -b 8 -e 8 -n 1000 -w 100
part launch all_gather --nproc 1 --place out -b 8 -e 8 -n 1000 -w 100
part launch-isolated all_gather --nproc 1 --place out -b 8 -e 8 -n 200 -w 20 --timing isolated
part launch-product --compute --nproc 1 --gemm 16,16,16 -n 1000 -w 100
if [ "$backend" = nccl ]; then
  # a capture for each buffer: no more runs than buffers that fill the cache twice would be enough
  part launch-graph all_gather --nproc 1 --place out -b 8 -e 8 -n 200 -w 20 -G
  for op in all_gather reduce_scatter all_to_all gather scatter; do
    part "graph-$op" $op --nproc 1 -b 1K -e 16M -f 128 -n 20 -G
  done
  for dtype in bfloat16 float16 float32 float8_e4m3fn; do
    part "products-$dtype" --compute --nproc 1 --gemm-dtype $dtype -n 50 -w 10
  done
else
  part products-float32 --compute --nproc 1 --gemm-dtype float32 -n 5 -w 1
fi
# all_gather of one rank is a copy on the device: it stands for what a collective takes of memory
part interference-copy all_gather --nproc 1 --place out --interfere -b 1M -e 256M -f 16 \
  --gemm $product --gemm 128,128,128 -n 20

if [ "$gpus" -gt 1 ]; then
  for op in all_reduce all_gather reduce_scatter all_to_all broadcast reduce gather scatter \
            barrier send_recv; do
    part "all-$op" $op --nproc "$gpus" -b 8 -e "$large" -f 8
  done
  for dtype in int8 int32 int64 float16 bfloat16 float64; do
    part "dtype-$dtype" all_reduce --nproc "$gpus" -d $dtype -b 1K -e 16M -f 128 -n 5
  done
  for redop in prod min max; do
    part "redop-$redop" all_reduce --nproc "$gpus" -o $redop -b 1K -e 16M -f 128 -n 5
  done
  part pairs send_recv --nproc "$gpus" --pairs -b 8 -e 64M -f 8388608
  part graphs all_reduce --nproc "$gpus" -b 8 -e 16M -f 128 -n 20 -G
  part interference all_reduce --nproc "$gpus" --interfere -b 1M -e 256M -f 16 \
    --gemm $product --gemm-dtype bfloat16
  if [ "$gpus" -ge 4 ]; then
    part groups all_reduce --nproc "$gpus" --groups 0,1/2,3 -b 1M -e 256M -f 16
  fi
fi

if [ "${#failed[@]}" -gt 0 ]; then
  echo "FAILED: ${failed[*]} (see $folder/NAME.err)"
  exit 1
fi
echo "all parts ran; results in $folder"

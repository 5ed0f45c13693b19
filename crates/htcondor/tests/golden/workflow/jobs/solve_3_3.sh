#!/bin/sh
export MODE='it'\''s $HOME'
export N='3'
export WINDLASS_PARAM_N='3'
export WINDLASS_JOB_NAME='solve.3'
export WINDLASS_CPUS='8'
export WINDLASS_MEMORY_BYTES='17179869184'
mkdir -p 'out'
"$(command -v bash || echo /bin/sh)" -c 'solve data/mesh.dat /usr/share/tool > "out/part 3.csv"'
code=$?
[ $code = 0 ] || exit $code
[ -e 'out/part 3.csv' ] || { printf '%s\n' 'windlass: ended with 0 but did not write out/part 3.csv' >&2; exit 1; }

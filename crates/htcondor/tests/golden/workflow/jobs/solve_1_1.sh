#!/bin/sh
export MODE='it'\''s $HOME'
export N='1'
export WINDLASS_PARAM_N='1'
export WINDLASS_JOB_NAME='solve.1'
export WINDLASS_CPUS='8'
export WINDLASS_MEMORY_BYTES='17179869184'
mkdir -p 'out'
"$(command -v bash || echo /bin/sh)" -c 'solve data/mesh.dat /usr/share/tool > "out/part 1.csv"'
code=$?
[ $code = 0 ] || exit $code
[ -e 'out/part 1.csv' ] || { printf '%s\n' 'windlass: ended with 0 but did not write out/part 1.csv' >&2; exit 1; }

#!/bin/sh
export MODE='it'\''s $HOME'
export N='2'
export WINDLASS_PARAM_N='2'
export WINDLASS_JOB_NAME='solve.2'
export WINDLASS_CPUS='8'
export WINDLASS_MEMORY_BYTES='17179869184'
mkdir -p 'out'
"$(command -v bash || echo /bin/sh)" -c 'solve data/mesh.dat /usr/share/tool > "out/part 2.csv"'
code=$?
[ $code = 0 ] || exit $code
[ -e 'out/part 2.csv' ] || { printf '%s\n' 'windlass: ended with 0 but did not write out/part 2.csv' >&2; exit 1; }

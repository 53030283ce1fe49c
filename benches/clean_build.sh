#!/usr/bin/env bash
# The CPU time of `cargo build --release` from nothing, and of the packages that take most of it. Arguments go to cargo.
# The target folder is a new temporary one, which is removed at the end (KEEP=1 leaves it).
set -euo pipefail
cd "$(dirname "$0")/.."
cargo fetch --locked --quiet
folder=$(mktemp -d)
[ -n "${KEEP:-}" ] && echo "built in $folder" >&2 || trap 'rm -r "$folder"' EXIT

# Stands before the compiler: a line of user and system seconds for each call, by package. Build scripts call it too, for C.
cat >"$folder/timed" <<'END'
#!/usr/bin/env bash
exec 3>&2
TIMEFORMAT="${CARGO_PKG_NAME:-?} %U %S"
{ time "$@" 2>&3; } 2>>"$TIMES"
END
printf '#!/bin/sh\nexec "%s/timed" cc "$@"\n' "$folder" >"$folder/cc"
chmod +x "$folder/timed" "$folder/cc"

export TIMES="$folder/times" CARGO_TARGET_DIR="$folder/target" CARGO_INCREMENTAL=0
# Lines are short enough to be appended whole by several at once.
RUSTC_WRAPPER="$folder/timed" CC="$folder/cc" cargo build --release "$@"
awk '
    { seconds[$1] += $2 + $3; all += $2 + $3 }
    END {
        printf "%.1f CPU minutes\n", all / 60
        for (package in seconds) printf "%8.1f s  %s\n", seconds[package], package | "sort -rn | head -10"
    }
' "$TIMES"

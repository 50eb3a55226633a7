#!/bin/bash
# Compiles C for tinygrad with the clang of the package ziglang, of the interpreter $TINYGRAD_PYTHON:
# that clang takes other names of the target, and tinygrad's linker no debugging information.
given=()
for argument in "$@"; do
  case $argument in
    --target=*) given+=("--target=$(uname -m)-linux-gnu") ;;
    -march=native) given+=(-mcpu=native) ;;
    *) given+=("$argument") ;;
  esac
done
object=$(mktemp --suffix=.o)
trap 'rm -f "$object"' EXIT
given[-1]=$object # instead of standard output, the last argument
"$TINYGRAD_PYTHON" -m ziglang cc -g0 -s -fno-sanitize=all "${given[@]}" && cat "$object"

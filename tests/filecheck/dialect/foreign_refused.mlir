// RUN: xdsl-opt %s --verify-diagnostics --split-input-file | filecheck %s

func.func @main(%x: tensor<?x4xf32>) {
  // CHECK: 2 names for 1 operands
  %y = pebble.foreign "Cos" at 3 reads %x as ["x", "y"] : (tensor<?x4xf32>) -> tensor<?x4xf32>
  func.return
}

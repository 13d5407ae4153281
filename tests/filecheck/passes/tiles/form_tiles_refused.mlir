// RUN: xdsl-opt %s -p pebble-form-tiles --verify-diagnostics --split-input-file | filecheck %s
// RUN: xdsl-opt %s -p 'pebble-form-tiles{widths=64,16}' --verify-diagnostics --split-input-file | filecheck %s --check-prefix WIDTHS

// WIDTHS: pebble-form-tiles: expected ascending positive tile widths, got [64, 16]
// CHECK: pebble-form-tiles: node 'bn': pebble.batch_norm runs neither in a tile nor outside
func.func @main(%x: tensor<?x1xf32>) -> tensor<?x1xf32> {
  %p = pebble.constant dense<1.0> : tensor<1xf32>
  %y = pebble.batch_norm %x scale %p bias %p mean %p variance %p epsilon 1.0 {pebble.node = "bn"} : (tensor<?x1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<?x1xf32>
  func.return %y : tensor<?x1xf32>
}

// -----

func.func @main(%x: tensor<?x1xf32>) -> tensor<?x1xf32> {
  // CHECK: pebble-form-tiles: pebble.foreign runs neither in a tile nor outside
  %y = pebble.foreign "Sin" at 0 reads %x as ["x"] : (tensor<?x1xf32>) -> tensor<?x1xf32>
  func.return %y : tensor<?x1xf32>
}

// -----

func.func @main(%x: tensor<?x4xf32>, %w: tensor<4x2xf32>) -> tensor<?x2xf32> {
  // CHECK: pebble-form-tiles: pebble.linear needs a known last axis and constant parameters
  %y = pebble.linear %x, %w : (tensor<?x4xf32>, tensor<4x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// RUN: xdsl-opt %s -p pebble-form-tiles --split-input-file | filecheck %s

// A column takes longer in tiles of 64 than in tiles of 32.
// CHECK-LABEL: @narrow
func.func @narrow(%x: tensor<?x2xf32> {pebble.name = "x", pebble.dims = ["batch", "2"]}) -> tensor<?x2xf32> {
  %w = pebble.constant dense<1.0> : tensor<2x2xf32>
  // CHECK: schedule <layer_by_layer, widths = [1, 8, 16, 32]>
  %h = pebble.linear %x, %w kernel <dense_panels, predicted [1: 1.0, 8: 2.0, 16: 3.0, 32: 4.0, 64: 9.0], "why"> : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  func.return %h : tensor<?x2xf32>
}

// -----

// What was measured counts; the layers of a tile count together.
// CHECK-LABEL: @together
func.func @together(%x: tensor<?x2xf32> {pebble.name = "x", pebble.dims = ["batch", "2"]}) -> tensor<?x2xf32> {
  %w = pebble.constant dense<1.0> : tensor<2x2xf32>
  // CHECK: schedule <layer_by_layer, widths = [1, 8, 32, 64]>
  %h = pebble.linear %x, %w kernel <dense_panels, predicted [1: 1.0, 8: 2.0, 16: 3.0, 32: 4.0, 64: 9.0], measured [64: 5.0], "why"> : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  %y = pebble.linear %h, %w kernel <dense_panels, predicted [1: 1.0, 8: 2.0, 16: 5.0, 32: 4.0, 64: 5.0], "why"> : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// Where no time is known, every width stays.
// CHECK-LABEL: @unknown
func.func @unknown(%x: tensor<?x2xf32> {pebble.name = "x", pebble.dims = ["batch", "2"]}) -> tensor<?x2xf32> {
  %w = pebble.constant dense<1.0> : tensor<2x2xf32>
  // CHECK: schedule <layer_by_layer, widths = [1, 8, 16, 32, 64]>
  %h = pebble.linear %x, %w kernel <dense_panels, "why"> : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  func.return %h : tensor<?x2xf32>
}

// RUN: xdsl-opt %s -p pebble-form-tiles --split-input-file | filecheck %s

// A column takes longer in tiles of 64 than in tiles of 32.
// CHECK-LABEL: @narrow
func.func @narrow(%x: tensor<?x2xf32> {pebble.name = "x", pebble.dims = ["batch", "2"]}) -> tensor<?x2xf32> {
  %w = pebble.constant dense<1.0> : tensor<2x2xf32>
  // CHECK: schedule <widths = [1, 8, 16, 32]>
  %h = pebble.linear %x, %w kernel <count_blocks, predicted [1: 1.0, 8: 2.0, 16: 3.0, 32: 4.0, 64: 9.0], "why"> : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  func.return %h : tensor<?x2xf32>
}

// -----

// What was measured counts; the layers of a tile count together.
// CHECK-LABEL: @together
func.func @together(%x: tensor<?x2xf32> {pebble.name = "x", pebble.dims = ["batch", "2"]}) -> tensor<?x2xf32> {
  %w = pebble.constant dense<1.0> : tensor<2x2xf32>
  // CHECK: schedule <widths = [1, 8, 32, 64]>
  %h = pebble.linear %x, %w kernel <count_blocks, predicted [1: 1.0, 8: 2.0, 16: 3.0, 32: 4.0, 64: 9.0], measured [64: 5.0], "why"> : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  %y = pebble.linear %h, %w kernel <count_blocks, predicted [1: 1.0, 8: 2.0, 16: 5.0, 32: 4.0, 64: 5.0], "why"> : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// Where no time is known, every width stays.
// CHECK-LABEL: @unknown
func.func @unknown(%x: tensor<?x2xf32> {pebble.name = "x", pebble.dims = ["batch", "2"]}) -> tensor<?x2xf32> {
  %w = pebble.constant dense<1.0> : tensor<2x2xf32>
  // CHECK: schedule <widths = [1, 8, 16, 32, 64]>
  %h = pebble.linear %x, %w kernel <count_blocks, "why"> : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  func.return %h : tensor<?x2xf32>
}

// -----

// Three vectors of columns are faster than four: the widest tiles have no place beside those.
// CHECK-LABEL: @three_vectors
func.func @three_vectors(%x: tensor<?x2xf32> {pebble.name = "x", pebble.dims = ["batch", "2"]}) -> tensor<?x2xf32> {
  %w = pebble.constant dense<1.0> : tensor<2x2xf32>
  // CHECK: schedule <widths = [1, 8, 16, 32, 48]>
  %h = pebble.linear %x, %w kernel <count_blocks, predicted [1: 1.0, 8: 2.0, 16: 3.0, 32: 5.0, 48: 5.8, 64: 9.0], "why"> : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  func.return %h : tensor<?x2xf32>
}

// -----

// A column of three vectors takes as long as one of four, but 48 rows are done in one tile sooner than in two.
// CHECK-LABEL: @four_vectors
func.func @four_vectors(%x: tensor<?x2xf32> {pebble.name = "x", pebble.dims = ["batch", "2"]}) -> tensor<?x2xf32> {
  %w = pebble.constant dense<1.0> : tensor<2x2xf32>
  // CHECK: schedule <widths = [1, 8, 16, 32, 48, 64]>
  %h = pebble.linear %x, %w kernel <count_blocks, predicted [1: 1.0, 8: 2.0, 16: 3.0, 32: 5.0, 48: 6.8, 64: 9.0], "why"> : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  func.return %h : tensor<?x2xf32>
}

// -----

// Three vectors of columns take longer than four.
// CHECK-LABEL: @two_tiles
func.func @two_tiles(%x: tensor<?x2xf32> {pebble.name = "x", pebble.dims = ["batch", "2"]}) -> tensor<?x2xf32> {
  %w = pebble.constant dense<1.0> : tensor<2x2xf32>
  // CHECK: schedule <widths = [1, 8, 16, 32, 64]>
  %h = pebble.linear %x, %w kernel <count_blocks, predicted [1: 1.0, 8: 2.0, 16: 3.0, 32: 5.0, 48: 9.6, 64: 9.0], "why"> : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  func.return %h : tensor<?x2xf32>
}

// -----

// Dense kernels do as many rows as there are, so widths between and beyond the others save time.
// CHECK-LABEL: @dense
func.func @dense(%x: tensor<?x2xf32> {pebble.name = "x", pebble.dims = ["batch", "2"]}) -> tensor<?x2xf32> {
  %w = pebble.constant dense<1.0> : tensor<2x2xf32>
  // CHECK: schedule <widths = [1, 8, 12, 16, 32, 64, 96]>
  %h = pebble.linear %x, %w kernel <dense_outputs, predicted [1: 5.0, 8: 6.0, 12: 7.0, 16: 9.0, 32: 16.0, 64: 31.0, 96: 46.0], "why"> : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  func.return %h : tensor<?x2xf32>
}

// -----

// Without a layer nothing gains by columns: rows are not transposed. Where they are short, each would cost a call.
// CHECK-LABEL: @rows
func.func @rows(%x: tensor<?x384xf32> {pebble.name = "x", pebble.dims = ["batch", "384"]}, %z: tensor<?x4xf32> {pebble.name = "z", pebble.dims = ["other", "4"]}) -> (tensor<?x384xf32>, tensor<?x4xf32>) {
  // CHECK: schedule <widths = [1]> : (tensor<?x384xf32>) -> tensor<?x384xf32>
  %y = pebble.activate <gelu> %x : (tensor<?x384xf32>) -> tensor<?x384xf32>
  // CHECK: schedule <widths = [1, 8, 16, 32, 64]> : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %s = pebble.softmax %z : (tensor<?x4xf32>) -> tensor<?x4xf32>
  func.return %y, %s : tensor<?x384xf32>, tensor<?x4xf32>
}

// RUN: xdsl-opt %s -p 'pebble-sparsify,pebble-form-sparse-networks' --split-input-file | filecheck %s

// Nothing here has a sparse weight.
// CHECK-LABEL: @dense
func.func @dense(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.constant dense<1.0> : tensor<2x2xf32>
  // CHECK-NOT: pebble.sparse_network
  // CHECK: pebble.linear %x
  %y = pebble.linear %x, %w kernel <dense_outputs, "why"> : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// A sparse weight that is not faster for every batch.
// CHECK-LABEL: @dense_for_some
func.func @dense_for_some(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.constant dense<[[0.0, 1.0], [0.0, 0.0]]> : tensor<2x2xf32>
  // CHECK-NOT: pebble.sparse_network
  // CHECK: pebble.linear %x
  %y = pebble.linear %x, %w kernel <permute_lookup from 1, dense_outputs from 8, "why"> : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// A large dense layer behind a sparse one stays with the runtime.
// CHECK-LABEL: @large_dense
func.func @large_dense(%x: tensor<?x2xf32>) -> tensor<?x4096xf32> {
  %w = pebble.constant dense<[[0.0, 1.0], [0.0, 0.0]]> : tensor<2x2xf32>
  %v = pebble.constant dense<1.0> : tensor<2x4096xf32>
  // CHECK: [[H:%.*]] = pebble.sparse_network %x
  // CHECK: pebble.yield
  %h = pebble.linear %x, %w kernel <count_blocks, "why"> : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  // CHECK: pebble.linear [[H]], %v
  %y = pebble.linear %h, %v kernel <dense_outputs, "why"> : (tensor<?x2xf32>, tensor<2x4096xf32>) -> tensor<?x4096xf32>
  func.return %y : tensor<?x4096xf32>
}

// -----

// The rows of what an ONNX node yields may be others than those of the layer.
// CHECK-LABEL: @unknown_rows
func.func @unknown_rows(%x: tensor<?x2xf32> {pebble.name = "x", pebble.dims = ["batch", "2"]}) -> tensor<?x2xf32> {
  %w = pebble.constant dense<[[0.0, 1.0], [0.0, 0.0]]> : tensor<2x2xf32>
  %c = pebble.foreign "Cos" at 0 reads %x as ["x"] : (tensor<?x2xf32>) -> tensor<?x2xf32>
  // CHECK: [[H:%.*]] = pebble.sparse_network %x
  // CHECK: pebble.yield
  %h = pebble.linear %x, %w kernel <count_blocks, "why"> : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  // CHECK: pebble.add [[H]],
  %y = pebble.add %h, %c : (tensor<?x2xf32>, tensor<?x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// Inputs whose rows agree in number only: the reshape stays outside, and what is behind it.
// CHECK-LABEL: @two_shapes_of_rows
func.func @two_shapes_of_rows(%x: tensor<?x3x2xf32> {pebble.name = "x", pebble.dims = ["batch", "3", "2"]}, %z: tensor<?x3x2xf32> {pebble.name = "z", pebble.dims = ["batch", "3", "2"]}) -> tensor<?x2xf32> {
  %w = pebble.constant dense<[[0.0, 1.0], [0.0, 0.0]]> : tensor<2x2xf32>
  // CHECK: pebble.reshape %z
  %g = pebble.reshape %z to <[_, 2]> : (tensor<?x3x2xf32>) -> tensor<?x2xf32>
  // CHECK: pebble.sparse_network %x
  %h = pebble.linear %x, %w kernel <count_blocks, "why"> : (tensor<?x3x2xf32>, tensor<2x2xf32>) -> tensor<?x3x2xf32>
  // CHECK: pebble.reshape
  %f = pebble.reshape %h to <[_, 2]> : (tensor<?x3x2xf32>) -> tensor<?x2xf32>
  %y = pebble.add %f, %g : (tensor<?x2xf32>, tensor<?x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// A vector has no rows.
// CHECK-LABEL: @vector
func.func @vector(%x: tensor<2xf32>) -> tensor<2xf32> {
  %w = pebble.constant dense<[[0.0, 1.0], [0.0, 0.0]]> : tensor<2x2xf32>
  // CHECK-NOT: pebble.sparse_network
  %y = pebble.linear %x, %w kernel <count_blocks, "why"> : (tensor<2xf32>, tensor<2x2xf32>) -> tensor<2xf32>
  func.return %y : tensor<2xf32>
}

// -----

// Keys of another length are other rows: attention to them stays between the networks.
// CHECK-LABEL: @cross_attention
func.func @cross_attention(%x: tensor<?x?x2xf32> {pebble.name = "x", pebble.dims = ["batch", "length", "2"]}, %k: tensor<?x?x2xf32> {pebble.name = "k", pebble.dims = ["batch", "other", "2"]}) -> tensor<?x?x2xf32> {
  %w = pebble.constant dense<[[0.0, 1.0], [0.0, 0.0]]> : tensor<2x2xf32>
  // CHECK: [[Q:%.*]] = pebble.sparse_network %x dims
  // CHECK: [[B:%.*]] = pebble.attention [[Q]], %k, %k
  // CHECK-NEXT: pebble.sparse_network [[B]] dims
  %q = pebble.linear %x, %w kernel <count_blocks, "why"> : (tensor<?x?x2xf32>, tensor<2x2xf32>) -> tensor<?x?x2xf32>
  %a = pebble.attention %q, %k, %k heads 2 kv_heads 2 scale 1.0 : (tensor<?x?x2xf32>, tensor<?x?x2xf32>, tensor<?x?x2xf32>) -> tensor<?x?x2xf32>
  %y = pebble.linear %a, %w kernel <count_blocks, "why"> : (tensor<?x?x2xf32>, tensor<2x2xf32>) -> tensor<?x?x2xf32>
  func.return %y : tensor<?x?x2xf32>
}

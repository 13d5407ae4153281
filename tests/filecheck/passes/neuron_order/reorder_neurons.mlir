// RUN: xdsl-opt %s -p 'pebble-reorder-neurons{order=counts batch=1,8}' | filecheck %s

// A neuron that more connections leave would come first; nothing is predicted to be faster, so that all stay.
// CHECK: builtin.module attributes {pebble.order = "identity; {{.*}} us at 1, {{.*}} us at 8; tried counts 1.000"}
// CHECK: %v = pebble.sparse_constant pointers dense<[0, 1, 3]> : tensor<3xi64> rows dense<[1, 0, 1]>
func.func @main(%x: tensor<?x1xf32>) -> tensor<?x2xf32> {
  %w = pebble.constant dense<[[1.0, 2.0]]> : tensor<1x2xf32>
  %v = pebble.sparse_constant pointers dense<[0, 1, 3]> : tensor<3xi64> rows dense<[1, 0, 1]> : tensor<3xi64> values dense<[1.0, 2.0, 3.0]> : tensor<3xf32> : tensor<2x2xf32, #pebble.sparsity<nonzeros = 3>>
  %h = pebble.linear %x, %w : (tensor<?x1xf32>, tensor<1x2xf32>) -> tensor<?x2xf32>
  %y = pebble.linear %h, %v : (tensor<?x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 3>>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

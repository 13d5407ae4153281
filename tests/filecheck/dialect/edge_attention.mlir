// RUN: xdsl-opt %s --print-op-generic | xdsl-opt | filecheck %s
// RUN: xdsl-opt %s --print-op-generic | filecheck %s --check-prefix GENERIC

func.func @main(%x: tensor<2x6xf32>, %s: tensor<2x4xf32>, %b: tensor<6xf32>) {
  %a = pebble.sparse_constant pointers dense<[0, 2, 3]> : tensor<3xi64> rows dense<[0, 1, 1]> : tensor<3xi64> values dense<[1.0, 2.0, 1.0]> : tensor<3xf32> : tensor<2x2xf32, #pebble.sparsity<nonzeros = 3>>
  %plain = pebble.attend_edges %x, %s, %a heads 2 : (tensor<2x6xf32>, tensor<2x4xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 3>>) -> tensor<2x6xf32>
  %whole = pebble.attend_edges %x, %s, %a bias %b heads 2 score <leaky_relu(0.2)> epsilon 1.0e-16 from_zero activation <relu> : (tensor<2x6xf32>, tensor<2x4xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 3>>, tensor<6xf32>) -> tensor<2x6xf32>
  func.return
}

// CHECK:      %plain = pebble.attend_edges %x, %s, %a heads 2 : (tensor<2x6xf32>, tensor<2x4xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 3>>) -> tensor<2x6xf32>
// CHECK-NEXT: %whole = pebble.attend_edges %x, %s, %a bias %b heads 2 score <leaky_relu(0.2)> epsilon 1.000000e-16 from_zero activation <relu> : (tensor<2x6xf32>, tensor<2x4xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 3>>, tensor<6xf32>) -> tensor<2x6xf32>

// GENERIC: %plain = "pebble.attend_edges"(%x, %s, %a) <{heads = 2 : i64}>

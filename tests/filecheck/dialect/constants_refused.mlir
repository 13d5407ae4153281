// RUN: xdsl-opt %s --verify-diagnostics --split-input-file | filecheck %s

// CHECK: value of type tensor<2xf32> for a result of type tensor<3xf32>
%0 = "pebble.constant"() <{value = dense<[0.5, 1.0]> : tensor<2xf32>}> : () -> tensor<3xf32>

// -----

// CHECK: result type tensor<4x2xf32> has no sparsity encoding
%0 = pebble.sparse_constant pointers dense<0> : tensor<3xi64> rows dense<> : tensor<0xi64> values dense<> : tensor<0xf32> : tensor<4x2xf32>

// -----

// CHECK: expected a sparse constant of rank 2, got 1
%0 = pebble.sparse_constant pointers dense<0> : tensor<3xi64> rows dense<> : tensor<0xi64> values dense<> : tensor<0xf32> : tensor<4xf32, #pebble.sparsity<nonzeros = 0>>

// -----

// CHECK: expected a sparse constant of known sizes, got ?x2
%0 = pebble.sparse_constant pointers dense<0> : tensor<3xi64> rows dense<> : tensor<0xi64> values dense<> : tensor<0xf32> : tensor<?x2xf32, #pebble.sparsity<nonzeros = 0>>

// -----

// CHECK: expected pointers tensor<3xi64>, got tensor<4xi64>
%0 = pebble.sparse_constant pointers dense<0> : tensor<4xi64> rows dense<> : tensor<0xi64> values dense<> : tensor<0xf32> : tensor<4x2xf32, #pebble.sparsity<nonzeros = 0>>

// -----

// CHECK: expected rows tensor<1xi64>, got tensor<1xi32>
%0 = pebble.sparse_constant pointers dense<[0, 1, 1]> : tensor<3xi64> rows dense<0> : tensor<1xi32> values dense<1.0> : tensor<1xf32> : tensor<4x2xf32, #pebble.sparsity<nonzeros = 1>>

// -----

// CHECK: expected values tensor<1xf32>, got tensor<2xf32>
%0 = pebble.sparse_constant pointers dense<[0, 1, 1]> : tensor<3xi64> rows dense<0> : tensor<1xi64> values dense<1.0> : tensor<2xf32> : tensor<4x2xf32, #pebble.sparsity<nonzeros = 1>>

// -----

// CHECK: pointers must ascend from 0 to 1
%0 = pebble.sparse_constant pointers dense<[0, 2, 1]> : tensor<3xi64> rows dense<0> : tensor<1xi64> values dense<1.0> : tensor<1xf32> : tensor<4x2xf32, #pebble.sparsity<nonzeros = 1>>

// -----

// CHECK: row 4 outside 0 to 3
%0 = pebble.sparse_constant pointers dense<[0, 1, 1]> : tensor<3xi64> rows dense<4> : tensor<1xi64> values dense<1.0> : tensor<1xf32> : tensor<4x2xf32, #pebble.sparsity<nonzeros = 1>>

// -----

// CHECK: rows of a column must ascend
%0 = pebble.sparse_constant pointers dense<[0, 2, 2]> : tensor<3xi64> rows dense<[1, 1]> : tensor<2xi64> values dense<1.0> : tensor<2xf32> : tensor<4x2xf32, #pebble.sparsity<nonzeros = 2>>

// -----

// CHECK: expected 1 scales, got 2
%0 = pebble.sparse_constant pointers dense<[0, 1]> : tensor<2xi64> rows dense<0> : tensor<1xi64> values dense<1.5> : tensor<1xf32> few_bits <4 bits, groups of 32, accuracy 0, scales dense<[0.5, 0.5]> : tensor<2xf32>, zeros dense<> : tensor<0xi16>> : tensor<4x1xf32, #pebble.sparsity<nonzeros = 1>>

// -----

// CHECK: expected 4 or 8 bits, got 2
%0 = pebble.sparse_constant pointers dense<[0, 1]> : tensor<2xi64> rows dense<0> : tensor<1xi64> values dense<1.5> : tensor<1xf32> few_bits <2 bits, groups of 32, accuracy 0, scales dense<[0.5]> : tensor<1xf32>, zeros dense<> : tensor<0xi16>> : tensor<4x1xf32, #pebble.sparsity<nonzeros = 1>>

// -----

// CHECK: expected groups of a power of two from 16 on, got 24
%0 = pebble.sparse_constant pointers dense<[0, 1]> : tensor<2xi64> rows dense<0> : tensor<1xi64> values dense<1.5> : tensor<1xf32> few_bits <4 bits, groups of 24, accuracy 0, scales dense<[0.5]> : tensor<1xf32>, zeros dense<> : tensor<0xi16>> : tensor<4x1xf32, #pebble.sparsity<nonzeros = 1>>

// -----

// CHECK: expected no zeros or 1, got 2
%0 = pebble.sparse_constant pointers dense<[0, 1]> : tensor<2xi64> rows dense<0> : tensor<1xi64> values dense<1.5> : tensor<1xf32> few_bits <4 bits, groups of 32, accuracy 0, scales dense<[0.5]> : tensor<1xf32>, zeros dense<[1, 2]> : tensor<2xi16>> : tensor<4x1xf32, #pebble.sparsity<nonzeros = 1>>

// -----

// CHECK: expected 1 scales, got 2
%0 = pebble.constant {few_bits = #pebble.few_bits<4 bits, groups of 32, accuracy 0, scales dense<[0.5, 0.5]> : tensor<2xf32>, zeros dense<> : tensor<0xi16>>} dense<[[1.5], [-4.0]]> : tensor<2x1xf32>

// -----

// CHECK: expected a weight of few bits of rank 2, got 1
%0 = pebble.constant {few_bits = #pebble.few_bits<4 bits, groups of 32, accuracy 0, scales dense<[0.5]> : tensor<1xf32>, zeros dense<> : tensor<0xi16>>} dense<[1.5, -4.0]> : tensor<2xf32>

// RUN: xdsl-opt %s -p pebble-fuse-aggregations | filecheck %s

// CHECK-LABEL: func.func @mean
func.func @mean(%x: tensor<2x4xf32>) -> tensor<3x4xf32> {
  // CHECK: [[G:%.*]] = pebble.sparse_constant {{.*}} values dense<[5.000000e-01, 1.000000e+00, 3.000000e+00]>
  %a = pebble.sparse_constant pointers dense<[0, 2, 2, 3]> : tensor<4xi64> rows dense<[0, 1, 1]> : tensor<3xi64> values dense<[1.0, 2.0, 3.0]> : tensor<3xf32> : tensor<2x3xf32, #pebble.sparsity<nonzeros = 3>>
  // CHECK-NEXT: [[B:%.*]] = pebble.constant dense<[1.000000e+00, 2.000000e+00, 3.000000e+00, 4.000000e+00]>
  // CHECK-NEXT: %y = pebble.aggregate %x, [[G]] bias [[B]] activation <relu> :
  %s = pebble.aggregate %x, %a : (tensor<2x4xf32>, tensor<2x3xf32, #pebble.sparsity<nonzeros = 3>>) -> tensor<3x4xf32>
  %degree = pebble.constant dense<[[2.0], [1.0], [1.0]]> : tensor<3x1xf32>
  %m = pebble.div %s, %degree : (tensor<3x4xf32>, tensor<3x1xf32>) -> tensor<3x4xf32>
  %bias = pebble.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
  %z = pebble.add %m, %bias : (tensor<3x4xf32>, tensor<4xf32>) -> tensor<3x4xf32>
  %y = pebble.activate <relu> %z : (tensor<3x4xf32>) -> tensor<3x4xf32>
  func.return %y : tensor<3x4xf32>
}

// two layers of one graph read one constant, in which nodes count themselves
// CHECK-LABEL: func.func @itself
func.func @itself(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  // CHECK: [[G:%.*]] = pebble.sparse_constant pointers dense<[0, 2, 3]> {{.*}} rows dense<[0, 1, 1]> {{.*}} values dense<[1.500000e+00, 2.000000e+00, 1.500000e+00]>
  %a = pebble.sparse_constant pointers dense<[0, 1, 1]> : tensor<3xi64> rows dense<[1]> : tensor<1xi64> values dense<[2.0]> : tensor<1xf32> : tensor<2x2xf32, #pebble.sparsity<nonzeros = 1>>
  %weight = pebble.constant dense<1.5> : tensor<1xf32>
  // CHECK-NEXT: %h = pebble.aggregate %x, [[G]] :
  %s = pebble.aggregate %x, %a : (tensor<2x4xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 1>>) -> tensor<2x4xf32>
  %own = pebble.mul %weight, %x : (tensor<1xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  %h = pebble.add %s, %own : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  // CHECK-NEXT: %y = pebble.aggregate %h, [[G]] :
  %s2 = pebble.aggregate %h, %a : (tensor<2x4xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 1>>) -> tensor<2x4xf32>
  %own2 = pebble.mul %h, %weight : (tensor<2x4xf32>, tensor<1xf32>) -> tensor<2x4xf32>
  %y = pebble.add %own2, %s2 : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  func.return %y : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @attention
func.func @attention(%x: tensor<2x4xf32>, %s: tensor<2x2xf32>) -> tensor<2x4xf32> {
  %a = pebble.sparse_constant pointers dense<[0, 1, 2]> : tensor<3xi64> rows dense<[0, 1]> : tensor<2xi64> values dense<1.0> : tensor<2xf32> : tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>
  %b = pebble.constant dense<2.0> : tensor<4xf32>
  // CHECK: pebble.attend_edges %x, %s, %a bias %b heads 1 activation <relu> :
  %h = pebble.attend_edges %x, %s, %a heads 1 : (tensor<2x4xf32>, tensor<2x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>) -> tensor<2x4xf32>
  %c = pebble.add %h, %b : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  %y = pebble.activate <relu> %c : (tensor<2x4xf32>) -> tensor<2x4xf32>
  func.return %y : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @edges_of_a_call
func.func @edges_of_a_call(%x: tensor<?x4xf32>, %i: !pebble.value<"tensor(int64)">, %j: !pebble.value<"tensor(int64)">) -> tensor<?x4xf32> {
  %s, %t, %v = pebble.edge_list of %x from %i to %j {pebble.dims = [["e"], ["e"], ["e"]]} : (tensor<?x4xf32>, !pebble.value<"tensor(int64)">, !pebble.value<"tensor(int64)">) -> (tensor<?xi32>, tensor<?xi32>, tensor<?xf32>)
  %e = pebble.sort_edges of %x, %s, %t, %v : (tensor<?x4xf32>, tensor<?xi32>, tensor<?xi32>, tensor<?xf32>) -> !pebble.edges
  %b = pebble.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
  // CHECK: %y = pebble.aggregate %x, %e bias %b activation <relu> :
  // CHECK-NEXT: func.return %y
  %h = pebble.aggregate %x, %e : (tensor<?x4xf32>, !pebble.edges) -> tensor<?x4xf32>
  %c = pebble.add %h, %b : (tensor<?x4xf32>, tensor<4xf32>) -> tensor<?x4xf32>
  %y = pebble.activate <relu> %c : (tensor<?x4xf32>) -> tensor<?x4xf32>
  func.return %y : tensor<?x4xf32>
}
